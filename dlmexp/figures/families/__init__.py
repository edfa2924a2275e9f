"""The figures of SPEC section 8, one file per family, each a declaration of panels and lines."""
