"""The terms of fgrl: what a sample, a span, a pair, a rollout, a reward and an advantage are.

Text-side types (`Sample`, `Pair`, ...) are pydantic models, one JSON line each. Tensor-side types (`Rollout`, `Batch`,
`Rewards`, `Advantages`) are dataclasses of torch tensors; importing this package does not import torch.

Shapes: `B` responses, `P` prompt tokens, `T` response tokens, `S` segments, `C` criteria. In every mask True means a
real token. Prompts are padded on the left, responses on the right; a response keeps its end-of-sequence token.
"""

from fgrl.base.mergeable import Mean, Most, Number, Numbers
from fgrl.base.references import Product, Ref
from fgrl.types.columns import (
    Column,
    of_all_rows,
    per_criterion,
    per_criterion_token,
    per_prompt_token,
    per_response,
    per_row,
    per_token,
)
from fgrl.types.drawn import DrawnResponse, Finish, Prompt, Turn, messages_of
from fgrl.types.marked import Feeling, Highlight, Marked
from fgrl.types.records import (
    AlarmRecord,
    Annotation,
    Checkpoint,
    Completion,
    Criterion,
    Message,
    Pair,
    Pairs,
    PairVerdict,
    Record,
    Report,
    Request,
    Response,
    Sample,
    Samples,
    Span,
    Stats,
    Usage,
    parse_line,
    read_jsonl,
    write_jsonl,
)
from fgrl.types.tensors import Advantages, Aggregation, Batch, Rewards, Rollout, Segmentable, TensorRows, Tokens
