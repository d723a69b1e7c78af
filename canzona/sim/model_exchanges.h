// Exchanges of forward and backward other than sums over tp: tokens of experts,
// and activations between pipeline stages.
//
// A layer with experts has two all-to-alls over the ep ranks in forward, to the
// experts and back, and two in backward, each with all tokens times the experts
// per token. Compute waits for them. Between stages, activations go forward and
// their gradients back, from each rank to its counterpart.
#pragma once

#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/sim/workload.h"

namespace canzona {

// The time of one all-to-all; 0 if ep = 1 or the width of activations is not
// known.
double token_exchange_seconds(const Plan& plan, const Workload& workload);
// Adds them to the passes, by module.
void add_token_exchanges(const Plan& plan, const Workload& workload,
                         std::vector<PassSeconds>& modules);

// The time to send the activations of a micro-batch from one stage to the next;
// 0 if pp = 1 or the width of activations is not known.
double stage_send_seconds(const Plan& plan, const Workload& workload);

// Returns how much longer a micro-batch takes in each direction because of
// sends between stages. 1F1B has as many micro-batches in flight as there are
// stages behind, so a round trip through n stages with 2 (n - 1) sends is
// shared by n micro-batches.
double exposed_sends(const Plan& plan, const Workload& workload);

}  // namespace canzona
