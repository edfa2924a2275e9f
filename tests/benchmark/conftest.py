import warnings

with warnings.catch_warnings():
    # torch deprecates its script decorator, which GPyTorch's dependency still uses when it is imported.
    warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
    import gpytorch  # noqa: F401
