"""Shampoo in PyTorch in the manner of Meta's Distributed Shampoo, for
comparisons: blocks, lists of tensors for element-wise work, one root after the
other. torch_rules_check.py holds it to known results.
"""
import torch


def eigen_root(a, root, damping):
    """A^(-1/root) by eigenvectors."""
    eye = torch.eye(len(a), dtype=a.dtype, device=a.device)
    values, vectors = torch.linalg.eigh(a + damping * eye)
    least = values.min()
    values = torch.where(least < damping, values - least + damping, values)
    return vectors * values.pow(-1 / root).unsqueeze(0) @ vectors.T


def newton_root(a, root, damping, iterations=18, tolerance=1e-6):
    """A^(-1/root) by the coupled Newton iteration. As in the original, every
    iteration waits for its error."""
    eye = torch.eye(len(a), dtype=a.dtype, device=a.device)
    b = a + damping * eye
    z = (root + 1) / (2 * torch.linalg.norm(b))
    x, m = z ** (1 / root) * eye, z * b
    for _ in range(iterations):
        if torch.dist(m, eye, p=float("inf")) <= tolerance:
            break
        factor = (1 + 1 / root) * eye - m / root
        x = x @ factor
        m = torch.linalg.matrix_power(factor, root) @ m
    return x


class Shampoo:
    """Two-sided, grafted from Adam."""

    def __init__(self, parameters, period=10, start=None, block=1024,
                 lr=1e-3, decay=0.1, betas=(0.9, 0.99), grafting_beta2=0.99,
                 grafting_epsilon=1e-8, epsilon=1e-12, rel_epsilon=1e-5,
                 root=eigen_root):
        self.parameters, self.period = list(parameters), period
        self.start = period if start is None else start
        self.block, self.lr, self.decay, self.betas = block, lr, decay, betas
        self.grafting = (grafting_beta2, grafting_epsilon)
        self.epsilon, self.rel_epsilon, self.root = epsilon, rel_epsilon, root
        self.t = 0
        self.blocks = self.split([p.detach() for p in self.parameters])
        self.m = [torch.zeros_like(b) for b in self.blocks]
        self.v = [torch.zeros_like(b) for b in self.blocks]
        self.factors = [[b.new_zeros(d, d) for d in b.shape]
                        for b in self.blocks]
        self.roots = [[torch.eye(d, dtype=b.dtype, device=b.device)
                       for d in b.shape] for b in self.blocks]

    def split(self, matrices):
        """Views of the blocks, rows outermost."""
        return [block for matrix in matrices
                for rows in matrix.split(self.block, 0)
                for block in rows.split(self.block, 1)]

    def refreshes(self, t):
        return t == self.start or (t > self.start and t % self.period == 0)

    def refreshes_next(self):
        return self.refreshes(self.t + 1)

    @torch.no_grad()
    def step(self):
        self.t += 1
        grads = self.split([p.grad for p in self.parameters])
        self.add_statistics(grads)
        if self.refreshes(self.t):
            self.refresh()
        means, grafts = self.moments(grads)
        directions = grafts
        if self.t >= self.start:
            directions = [left @ mean @ right for mean, (left, right)
                          in zip(means, self.roots)]
            lengths = torch._foreach_norm(directions)
            torch._foreach_add_(lengths, 1e-16)
            torch._foreach_mul_(directions, torch._foreach_div(
                torch._foreach_norm(grafts), lengths))
        torch._foreach_add_(directions, self.blocks, alpha=self.decay)
        torch._foreach_add_(self.blocks, directions, alpha=-self.lr)

    def add_statistics(self, grads):
        b2 = self.betas[1]
        for g, (left, right) in zip(grads, self.factors):
            left.mul_(b2).add_(g @ g.T, alpha=1 - b2)
            right.mul_(b2).add_(g.T @ g, alpha=1 - b2)

    def refresh(self):
        correction = 1 - self.betas[1] ** self.t
        for factors, roots in zip(self.factors, self.roots):
            for axis, factor in enumerate(factors):
                a = factor / correction
                damping = torch.linalg.norm(a).mul(self.rel_epsilon)
                damping.clamp_(min=self.epsilon)
                roots[axis] = self.root(a, 2 * len(factors), damping)

    def moments(self, grads):
        """The filtered gradient, and the step that Adam would take."""
        b1, (b2, epsilon) = self.betas[0], self.grafting
        torch._foreach_mul_(self.v, b2)
        torch._foreach_addcmul_(self.v, grads, grads, 1 - b2)
        torch._foreach_lerp_(self.m, grads, 1 - b1)
        means = torch._foreach_div(self.m, 1 - b1 ** self.t)
        roots = torch._foreach_div(self.v, 1 - b2 ** self.t)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, epsilon)
        return means, torch._foreach_div(means, roots)
