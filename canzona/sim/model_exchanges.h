// What forward and backward exchange beside sums over tp: tokens of experts,
// and activations between pipeline stages.
//
// A layer of experts has two all-to-alls over the ep ranks in forward, to the
// experts and back, and two in backward, each of all tokens as often as they
// visit experts. Compute waits for them. Between stages activations go forward
// and their gradients back, from each rank to the one at its place.
#pragma once

#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/sim/workload.h"

namespace canzona {

// One all-to-all; 0 where ep = 1 or the width of activations is not known.
double token_exchange_seconds(const Plan& plan, const Workload& workload);
// Adds them to the passes, by module.
void add_token_exchanges(const Plan& plan, const Workload& workload,
                         std::vector<PassSeconds>& modules);

// Activations of a micro-batch from one stage to the next; 0 where pp = 1 or
// the width of activations is not known.
double stage_send_seconds(const Plan& plan, const Workload& workload);

// 1F1B has as many micro-batches in flight as there are stages behind: a round
// trip of n stages and 2 (n - 1) sends is shared out among n micro-batches. So
// a micro-batch takes this part of both sends longer.
double exposed_sends(const Plan& plan, const Workload& workload);

}  // namespace canzona
