// A trainer of one's own on a GPU: two ranks that share it learn the numbers of
// a sine. The host only issues; it waits for the losses that it prints.
#include <cuda_runtime.h>

#include <cstdio>

#include "canzona/comm/thread/run_ranks.h"
#include "canzona/plan/make_plan.h"
#include "canzona/runtime/runtime.h"
#include "canzona/shapes/read_model.h"

using namespace canzona;

__global__ void backward(const float* w, float* gradient, int count,
                         float* loss) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    gradient[i] = w[i] - sinf(static_cast<float>(i * i));
    atomicAdd(loss, gradient[i] * gradient[i]);
  }
}

int main() {
  const Model model = model_from_shapes(
      R"([{"name": "layers.0.up", "shape": [96, 32]},
          {"name": "layers.0.down", "shape": [32, 96]}])",
      "two matrices");
  const auto muon = make_rule_facts("muon", {{"device", "cuda"}});
  PlanOptions options;
  options.parameters = DType::kFp32;
  const Plan plan = make_plan({model, parse_mesh("dp=2"), *muon, options});
  run_ranks(plan.mesh.world(), [&](Communicator& world) {
    cudaStream_t stream = nullptr;  // ours: kernels and steps in one order
    cudaStreamCreate(&stream);
    float* loss = nullptr;
    cudaMallocManaged(&loss, 101 * sizeof(float));
    cudaMemset(loss, 0, 101 * sizeof(float));
    {
      const auto engine = make_cuda_engine(0, stream);
      Runtime runtime(plan, world, *engine, {});  // weights are zeros
      for (int step = 1; step <= 100; ++step) {
        runtime.wait_all_params();  // the stream does, not this thread
        for (const int32_t tensor : {1, 0}) {
          backward<<<1, 256, 0, stream>>>(
              runtime.parameter(tensor).data(), runtime.gradient(tensor).data(),
              static_cast<int>(runtime.shard_elements(tensor)), loss + step);
          runtime.grad_ready(tensor);  // its bucket leaves behind the kernel
        }
        runtime.issue_step({.learning_rate = 0.05, .gradient_factor = 0.5});
      }
      if (runtime.outcome().skipped) std::printf("the last step was skipped\n");
    }
    cudaStreamSynchronize(stream);
    for (int step = 1; world.rank() == 0 && step <= 100; ++step)
      if (step == 1 || step % 25 == 0)
        std::printf("step %3d  loss %8.2f\n", step, loss[step]);
    cudaFree(loss);
    cudaStreamDestroy(stream);
  });
}
