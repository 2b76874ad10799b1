"""Prompt tokens of a chat request, counted as SGLang will count them: chat template, tokenizer, placeholders."""
