// A stream for the memory operations of collectives on a GPU, and events that
// order it with engines.
//
//   auto lane = make_cuda_lane();
//   auto event = make_cuda_event();
//   lane->record_in(*event);
//   wait_for_cuda_event(*event, stream);
//
// Lanes belong to the calling thread's device. One thread at a time may issue
// to a stream; any thread may query events.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "canzona/linalg/memory.h"

namespace canzona {

std::unique_ptr<MemoryLane> make_cuda_lane();

// All events of lanes and engines of the GPU are made here.
std::unique_ptr<Event> make_cuda_event();
std::unique_ptr<Event> make_timed_cuda_event();
void record_cuda_event(Event& event, cudaStream_t stream);
// Does nothing if the event was never recorded.
void wait_for_cuda_event(const Event& event, cudaStream_t stream);

}  // namespace canzona
