"""Texts to vectors: the providers that embed, and the one way a query asks them."""
