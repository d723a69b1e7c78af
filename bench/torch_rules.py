"""Matrix optimizers in PyTorch, for comparisons: our own words for what public
implementations do, in their order and with their way of looping.

    optimizer = Soap(parameters, period=10)
    optimizer.step()            # reads .grad, writes the parameters
    optimizer.refreshes_next()  # whether the next step renews bases or roots

They work on any device and in the parameters' type. torch_rules_check.py holds
them to known results.
"""
import torch

SIMPLE = (3.4445, -4.7750, 2.0315)


def orthogonalized(x, dtype=torch.bfloat16, epsilon=1e-7):
    """Five Newton-Schulz steps as KellerJordan/Muon takes them."""
    a, b, c = SIMPLE
    tall = x.size(-2) > x.size(-1)
    x = (x.mT if tall else x).to(dtype)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + epsilon)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class KellerMuon:
    """KellerJordan/Muon on one device: one parameter after the other."""

    def __init__(self, parameters, lr=0.02, decay=0.0, mu=0.95,
                 dtype=torch.bfloat16):
        self.parameters, self.lr, self.decay = list(parameters), lr, decay
        self.mu, self.dtype = mu, dtype
        self.momenta = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        for p, momentum in zip(self.parameters, self.momenta):
            momentum.lerp_(p.grad, 1 - self.mu)
            update = orthogonalized(p.grad.lerp(momentum, self.mu), self.dtype)
            update *= max(1, p.size(-2) / p.size(-1)) ** 0.5
            p.mul_(1 - self.lr * self.decay)
            p.add_(update, alpha=-self.lr)


def gram_orthogonalized(x, restart=2):
    """The same on a batch of wide matrices, iterating on Gram matrices."""
    a, b, c = SIMPLE
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7).to(x.dtype)
    for steps in (restart, 5 - restart):
        r = x @ x.mT
        q = None
        for k in range(steps):
            p = torch.baddbmm(r, r, r, beta=b, alpha=c)
            p.diagonal(dim1=-2, dim2=-1).add_(a)
            q = p if q is None else p @ q
            if k + 1 < steps:
                r = p @ r @ p
        x = q @ x
    return x


class BatchedGramMuon:
    """The best of PyTorch by itself: equal shapes as one batch, Gram form."""

    def __init__(self, parameters, lr=0.02, mu=0.95, dtype=torch.float16):
        self.lr, self.mu, self.dtype = lr, mu, dtype
        self.groups = {}
        for p in parameters:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.momenta = {shape: [torch.zeros_like(p) for p in group]
                        for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self):
        for (rows, cols), group in self.groups.items():
            momenta, grads = self.momenta[rows, cols], [p.grad for p in group]
            torch._foreach_lerp_(momenta, grads, 1 - self.mu)
            blended = torch._foreach_lerp(grads, momenta, self.mu)
            norms = torch._foreach_norm(blended)
            torch._foreach_div_(blended, norms)  # fp16 holds no small numbers
            x = torch.stack([u.to(self.dtype) for u in blended])
            x = gram_orthogonalized(x.mT.contiguous() if rows > cols else x)
            updates = list(x.mT if rows > cols else x)
            scale = max(1, rows / cols) ** 0.5
            torch._foreach_add_(group, [u.float() for u in updates],
                                alpha=-self.lr * scale)


class Soap:
    """nikhilvyas/SOAP: one parameter after the other, the first moment taken
    out of the basis and back at every step."""

    def __init__(self, parameters, period=10, lr=3e-3, betas=(0.95, 0.95),
                 epsilon=1e-8, decay=0.01, max_dim=10000, first_basis="eigh"):
        self.parameters, self.period, self.lr = list(parameters), period, lr
        self.betas, self.epsilon, self.decay = betas, epsilon, decay
        self.first_basis = first_basis
        self.t = -1
        self.states = [self.new_state(p, max_dim) for p in self.parameters]

    @staticmethod
    def new_state(p, max_dim):
        factors = [torch.zeros(d, d, dtype=p.dtype, device=p.device)
                   if d <= max_dim else None for d in p.shape]
        return {"m": torch.zeros_like(p), "v": torch.zeros_like(p),
                "factors": factors, "bases": [None, None]}

    def refreshes_next(self):
        return (self.t + 1) % self.period == 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p, state in zip(self.parameters, self.states):
            if self.t == 0:
                self.begin(p.grad, state)
            else:
                self.step_one(p, state)

    def add_statistics(self, g, state):
        for factor, outer in zip(state["factors"], (lambda: g @ g.T,
                                                    lambda: g.T @ g)):
            if factor is not None:
                factor.lerp_(outer(), 1 - self.betas[1])

    def begin(self, g, state):
        """Only finds a basis. Any will do where just time is measured."""
        self.add_statistics(g, state)
        for axis, factor in enumerate(state["factors"]):
            if factor is None:
                continue
            if self.first_basis == "eigh":
                shift = 1e-30 * torch.eye(len(factor), dtype=factor.dtype,
                                          device=factor.device)
                state["bases"][axis] = torch.linalg.eigh(
                    factor + shift)[1].flip(1)
            else:
                noise = torch.randn_like(factor)
                state["bases"][axis] = torch.linalg.qr(noise)[0]

    @staticmethod
    def project(x, bases):
        left, right = bases
        x = x if left is None else left.T @ x
        return x if right is None else x @ right

    @staticmethod
    def project_back(x, bases):
        left, right = bases
        x = x if left is None else left @ x
        return x if right is None else x @ right.T

    def step_one(self, p, state):
        b1, b2 = self.betas
        g, m, v, bases = p.grad, state["m"], state["v"], state["bases"]
        rotated = self.project(g, bases)
        m.mul_(b1).add_(rotated, alpha=1 - b1)
        v.mul_(b2).add_(rotated.square(), alpha=1 - b2)
        update = self.project_back(m / (v.sqrt().add_(self.epsilon)), bases)
        size = (1 - b2 ** self.t) ** 0.5 / (1 - b1 ** self.t)
        p.add_(update, alpha=-self.lr * size)
        p.add_(p, alpha=-self.lr * self.decay)
        moment = self.project_back(m, bases)
        self.add_statistics(g, state)
        if self.t % self.period == 0:
            self.refresh(state)
        state["m"] = self.project(moment, bases)

    @staticmethod
    def refresh(state):
        for axis, factor in enumerate(state["factors"]):
            if factor is None:
                continue
            q = state["bases"][axis]
            order = torch.argsort(torch.diag(q.T @ factor @ q),
                                  descending=True)
            state["v"] = state["v"].index_select(axis, order)
            state["bases"][axis] = torch.linalg.qr(factor @ q[:, order])[0]
