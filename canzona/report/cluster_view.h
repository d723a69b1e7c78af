// The prediction for a plan on a cluster, and the page that draws it.
#pragma once

#include <string>

#include "canzona/plan/plan.h"
#include "canzona/report/document.h"
#include "canzona/sim/cluster.h"
#include "canzona/sim/plan_iteration.h"

namespace canzona::report {

struct ShownCluster {
  const Plan& plan;
  const Cluster& cluster;
  const Workload& work;
  std::string collectives;  // "direct", "node" or "ring"
  int64_t activations = 0;  // bytes per rank, in addition to the plan's
  ClusterPrediction predicted;
};

Document cluster_view(const ShownCluster& shown);
std::string cluster_html(const ShownCluster& shown);

}  // namespace canzona::report
