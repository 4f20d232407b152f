"""Forty secrets as people put them into recipes: by the name of a setting, by their form, in lists, commands and headers."""

from __future__ import annotations

from typing import Any

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEplanted27AbCdEfGh\nIjKlplanted27\n-----END RSA PRIVATE KEY-----\n"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwbGFudGVkMjgifQ.cGxhbnRlZC1zaWduYXR1cmU"

SETTINGS: dict[str, Any] = {
    "api_key": "planted-01-value",
    "apiKey": "planted-02-value",
    "X-Api-Key": "planted-03-value",
    "token": "planted-04-value",
    "apiToken": "planted-05-value",
    "access_token": "planted-06-value",
    "hfToken": "planted-07-value",
    "private_key": "planted-08-value",
    "aws_secret_access_key": "planted/09+value/AbCdEfGhIj",
    "client-secret": "planted-10-value",
    "secret": "planted-11-value",
    "password": "plantedtwelve",
    "db_password_2": "plantedthirteen",
    "passphrase": "planted fourteen value",
    "cookie": "session=planted-15",
    "Authorization": "planted-16-value",
    "credentials": {"user": "planted-17", "value": "planted-18-value"},
    "tokens": ["planted-19-value", "planted-20-value"],
    "api_keys": ["planted-21-value"],
    "signing_key": "planted-22-value",
    "SESSION_ID": "planted-23-value",
    "bearer": "planted-24-value",
    "passcode": 73519025,
    "id": "AKIAPLANTED26ABCDEFG",
    "text": PEM,
    "header": JWT,
    "first": "sk-planted29AbCdEfGhIjKl",
    "second": "hf_Planted30AbCdEfGhIjKlMn",
    "third": "ghp_Planted31AbCdEfGhIjKlMn",
    "fourth": "xoxb-planted-32-AbCdEf",
    "address": "https://ann:planted33@host.example/v1",
    "proxy": "postgres://user:planted-34@host:5432/db",
    "query": "https://host.example/v1?api_key=planted-35&b=2",
    "headers": ["X-Api-Key: planted-36", "Accept: text"],
    "command": ["curl", "--password", "planted-37"],
    "shell": "tool --api-key planted-38 --level 2",
    "overrides": ["stages.a.arguments.api_token=planted-39-x"],
    "lines": "see:\n  Authorization: Bearer planted-40-AbC\n",
}
"""Settings by name; with the parts of nested ones there are forty."""

MARKS = [
    *(f"planted-{number:02d}" for number in range(1, 41) if number not in (9, 12, 13, 14, 25, 26, 27, 28, 29, 30, 31, 33)),
    "planted/09", "plantedtwelve", "plantedthirteen", "planted fourteen", "73519025", "PLANTED26", "planted27", JWT.split(".")[1],
    "planted29", "Planted30", "Planted31", "planted33",
]  # fmt: skip
"""A part of each secret that nothing else contains."""

PLAIN: dict[str, Any] = {
    "max_new_tokens": 12, "token_policy": "words", "tokenizer": "smollm2-135m-instruct", "pad_token": "<|endoftext|>",
    "eos_token": "</s>", "stop_token": "Observation", "image_token": "<image>", "token": "<sep>", "tokens": ["[PAD]", "</s>"],
    "api_key_env": "OPENAI_API_KEY", "password_file": "secrets/pw", "secret_name": "prod", "max_tokens_name": "max_completion_tokens",
    "model": "hf-internal-testing/tiny-random-LlamaForCausalLM", "task": "sk-learn-based-classifier", "key": "prompt", "keys": ["a", "b"],
    "author": "ann", "authors": ["ann"], "passes": 3, "compass": "north", "monkey": "business", "session": "train",
    "prompt": "The token: it is a word. A password is asked for: wait. Secret recipes are bearer of news.",
    "url": "https://host.example/v1?tokens=12&monkey=1", "git": "ssh://git@host/x", "credit": "spans",
    "token_weight": 0.5, "per_token": "mean", "loss": "token_mean", "no_token": None,
}  # fmt: skip
"""Settings that are no secret."""
