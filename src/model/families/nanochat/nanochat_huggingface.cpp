// transformers' NanoChat is an older one, without value embeddings, scales, smear and windows: these files
// have our own names (HuggingFaceLayout).
