"""Tells within a minute whether an installation is right, and how fast.

    python -m canzona.selftest                                one process
    torchrun --nproc-per-node 8 -m canzona.selftest           all GPUs of a machine

docs/pytorch.md says what the parts check.
"""
