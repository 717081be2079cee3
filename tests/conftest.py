"""What all tests share: nothing but that they are collected once."""

import gc


def pytest_collection_finish():
    """Thousands of tests live as long as the run: no collection of garbage looks at them again."""
    gc.collect()
    gc.freeze()
