"""Trained models for others: folders that transformers, peft and vLLM load without fgrl, their model cards, the upload
to the hub, and conversations with them.

    record = provenance.read(stage_folder)                        # what the model was made from, and what was measured of it
    exported = exporting.export(model_folder, target, record)     # weights, tokenizer, card, and a check of what was written
    pushing.push(target, "owner/name")                            # private, unless it is asked to be public

It knows no recipe: a stage's folder records its settings, and the stages that it was made from lie beside it.
"""
