// A Workload is what a plan is to train: tokens, rates, and how communication
// overlaps compute. How long its modules compute is estimated from their
// shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/options.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/zero.h"
#include "canzona/shapes/tensor.h"
#include "canzona/sim/ports.h"

namespace canzona::sim {

// Computes how much longer the slowest of many ranks takes than the mean.
//
//   slowest_of(256, 0.02)   // 1.056: of 256 ranks that differ by 2 %
//
// Ranks are assumed to be normally distributed and to wait for the slowest. All
// functions are pure.

// Standard deviations relative to the mean: of the time that cards take for the
// same work, which is permanent; and of the lengths of sequences, which are
// drawn anew for every micro-batch.
struct RankSpread {
  double compute = 0;
  double length = 0;
  friend bool operator==(const RankSpread&, const RankSpread&) = default;
};

// Returns the expected maximum of `count` standard normal numbers, by Blom's
// formula.
double expected_largest(int64_t count);

// 1 + spread · expected_largest(count).
double slowest_of(int64_t count, double spread);

// Estimates a module's compute time from its shapes.
//
//   std::vector<PassSeconds> modules = compute_seconds(
//       model, {.tokens = 8192, .length = 4096, .width = 5120,
//               .flops_per_second = 300e12 * 0.5});
//
// Forward takes 2 flops per weight and token, backward 4; attention takes 6 ·
// length · width per token and layer (causal: half of the full square), divided
// in the same ratio; recomputation repeats every forward. An embedding is
// looked up and costs nothing; a tied head multiplies by it, in the head's
// module. Only the experts that a token visits count. Norms, biases and
// everything else bound by memory belong in a rate that was measured.

struct ComputeLoad {
  int64_t tokens = 0;  // of one micro-batch on one data-parallel rank
  int64_t length = 0;  // of a sequence
  int64_t width = 0;   // query heads × head size
  double flops_per_second = 0;
  // Of attention, whose kernels reach less of a card than products do; 0: as
  // products.
  double attention_flops_per_second = 0;
  int64_t experts_per_token = 0;  // if there are experts
  int32_t tensor_parallel = 1;    // ranks that share every product
  bool recompute = false;
  std::vector<double> weights = {};  // weights_per_token(), if known already

  double attention_rate() const {
    return attention_flops_per_second > 0 ? attention_flops_per_second
                                          : flops_per_second;
  }
};

struct PassSeconds {
  double forward = 0;
  double backward = 0;
};

// Returns times by module: embedding, layers, and the head with everything
// else. Throws UsageError for loads that make no sense.
std::vector<PassSeconds> compute_seconds(const Model& model,
                                         const ComputeLoad& load);

// Returns the number of weights that a token is multiplied by in each module.
std::vector<double> weights_per_token(const Model& model,
                                      int64_t experts_per_token);

// Hierarchical links: ranks of a node, nodes of a pod, pods of a cluster.
// Levels are blocks of consecutive ranks, each consisting of blocks of the
// level before.
//
//   const std::vector<LinkLevel> levels = …;          // smallest first
//   links_of(levels);                                 // of the first two
//   FarLinks far = far_links(levels, rank, peers);    // and of those beyond
//
// A message to another node leaves by one port, whatever level it crosses. Its
// bandwidth is that of the narrowest link on its path; an oversubscribed level
// divides every rank's bandwidth by its factor. All functions are pure.

struct LinkLevel {
  std::string name;
  int32_t ranks = 1;            // per block
  double bytes_per_second = 0;  // per rank and direction
  double latency_seconds = 0;
  // The ratio of the bytes that ranks may send over the level to what it
  // carries.
  double oversubscription = 1;

  double rate() const { return bytes_per_second / oversubscription; }
  friend bool operator==(const LinkLevel&, const LinkLevel&) = default;
};

// Returns the links inside a node and to the nearest other one. A cluster with
// one level consists of a single node.
Links links_of(const std::vector<LinkLevel>& levels);

// Returns the level of the smallest block that contains both; the last one if
// none does.
size_t level_of(const std::vector<LinkLevel>& levels, int32_t a, int32_t b);

// How much longer bytes to these peers take than to the nearest other node, and
// how much later they arrive.
struct FarLinks {
  double scale = 1;
  double added_latency_seconds = 0;
};

// Peers of a rank by level.
using PeersByLevel = std::vector<int64_t>;

// `peers[l]` is the number of peers at level l, each with the same bytes.
FarLinks far_links(const std::vector<LinkLevel>& levels,
                   const PeersByLevel& peers);

struct Workload {
  // The load of one micro-batch on one data-parallel rank; the plan knows how
  // many ranks share a product.
  ComputeLoad compute = {};
  // Measured by module on one rank as planned; if empty, derived from shapes.
  std::vector<PassSeconds> measured = {};
  int64_t num_micro_batches = 1;
  // The width of an activation between layers, for the sums over tp ranks; 0 if
  // `measured` includes these or they are not to be counted.
  int64_t hidden = 0;
  int64_t bytes_per_activation = 4;
  Overlap overlap = Overlap::kBackground;
  // The size of the segments in which sums travel.
  int64_t segment_bytes = 256 << 10;
  double copy_bytes_per_second = 0;  // per background thread; 0: free
  Meetings meetings = {};
  // All levels of links, of which the plan's two classes are the first two; if
  // empty, there are no others.
  std::vector<LinkLevel> levels = {};
  // If true, direct sums and gathers of buckets use rings instead.
  bool rings = false;
  RankSpread spread = {};
  // Says where the rates of compute come from; "": a nominal rate.
  std::string rates = {};
  double peak_flops = 0;  // per second and card, of its vendor; 0: not known
};

// Sums over the ranks that share every product (tensor parallelism): compute
// waits for each of them.
//
// A layer has two in forward and two in backward, over all activations of a
// micro-batch; the embedding has one in forward, the head one in backward.
// Recomputation repeats those of a layer's forward.

// The time of one such sum; 0 if tp = 1 or the width of activations is not
// known.
double tp_sum_seconds(const Plan& plan, const Workload& workload);

// Adds them to the passes, by module.
void add_tp_sums(const Plan& plan, const Workload& workload,
                 std::vector<PassSeconds>& modules);

}  // namespace canzona::sim
