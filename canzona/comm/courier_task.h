// What a courier can be given beside single collectives: some of them with
// work of the caller's in between, on the courier's thread.
//
//   class AddUp final : public CourierTask {
//     void run(Communicator& group, const Call& call) override {
//       group.reduce_scatter_v(…, call);
//       add(sums, accumulated);
//     }
//   };
//   Work done = courier.run(task, {.label = "layers.3"});
//
// Every rank runs tasks that call the same collectives. The object belongs to
// the caller and stays until the work is done.
#pragma once

#include <string_view>

#include "canzona/comm/call.h"

namespace canzona {

class Communicator;

class CourierTask {
 public:
  virtual ~CourierTask() = default;

  // The label lives until it returns. What it throws ends the group's
  // operations on every rank, as an error of a collective does.
  virtual void run(Communicator& communicator, const Call& call) = 0;

  // Of its span. Lives as long as the trace.
  virtual std::string_view name() const { return "task"; }
};

}  // namespace canzona
