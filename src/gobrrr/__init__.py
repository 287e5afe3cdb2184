"""gobrrr: tell me what limits my PyTorch step, from first principles; fix it; prove it."""
