// The C++ interface of Canzona: everything that a program of one's own needs to
// plan, run, save and resume. docs/cpp.md shows it; all other headers are
// details, which may change with every version.
//
//   #include <canzona/canzona.h>        // target canzona::canzona
//
//   const auto muon = make_rule_facts("muon", {});
//   const Plan plan = make_plan({model, parse_mesh("dp=4"), *muon, {}});
//   run_ranks(plan.mesh.world(), [&](Communicator& world) {
//     const auto engine = make_cpu_engine();
//     Runtime runtime(plan, world, *engine, {});
//     …
//   });
#pragma once

// Errors: UsageError, NumericalError, PeerLost, InternalError.
#include "canzona/base/error.h"

// Models and rules, as a plan sees them.
#include "canzona/rules/facts.h"
#include "canzona/shapes/read_model.h"

// Plans: made, checked, written, predicted.
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/validate/validate.h"

// Ranks: threads of this process, or processes under MPI, TCP and NCCL.
#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/nccl/nccl_library.h"
#include "canzona/comm/nccl/nccl_session.h"
#include "canzona/comm/tcp/tcp_session.h"
#include "canzona/comm/thread/run_ranks.h"

// Devices and optimizers.
#include "canzona/linalg/engine.h"
#include "canzona/rules/optimizer.h"

// A rank's part of a plan, carried out, saved and resumed.
#include "canzona/runtime/runtime.h"
#include "canzona/saving/load_state.h"
#include "canzona/saving/run_saver.h"
