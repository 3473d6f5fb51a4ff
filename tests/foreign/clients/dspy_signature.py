"""What a program with DSPy does, run by frameworks.ts: a signature with fields of
several types, with both adapters, with and without reasoning."""
import os
from typing import Literal

import dspy

ADDRESS, KEY, MODEL = (os.environ[name] for name in ("ADDRESS", "KEY", "MODEL"))
lm = dspy.LM(
    f"openai/{MODEL}",
    api_base=f"{ADDRESS}/v1",
    api_key=KEY,
    cache=False,
)


class Describe(dspy.Signature):
    """Say who it is."""

    text: str = dspy.InputField()
    name: str = dspy.OutputField()
    age: int = dspy.OutputField()
    happy: bool = dspy.OutputField()
    kind: Literal["cat", "dog"] = dspy.OutputField()
    tags: list[str] = dspy.OutputField()


for adapter in (
    dspy.ChatAdapter(use_json_adapter_fallback=False),
    dspy.JSONAdapter(),
):
    for module in (dspy.Predict, dspy.ChainOfThought):
        with dspy.context(lm=lm, adapter=adapter):
            told = module(Describe)(text="Ada is 36 and has a dog.")
        shown = (adapter, module, told)
        assert told.age == 36 and isinstance(told.happy, bool), shown
        assert told.kind == "dog" and isinstance(told.tags, list), shown
