// transformers has no nanochat: its files have our own names (HuggingFaceLayout).
