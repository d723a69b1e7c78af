// The element-wise stages (linalg/stages.h) on the CPU: plain loops, compiled
// for several instruction sets; the best one for this CPU is used. All give the
// same bits: they only add, multiply, divide and take roots, each operation
// rounded separately. Any thread may call.
#pragma once

#include <cstdint>

#include "canzona/linalg/engine.h"

namespace canzona::linalg {

void cpu_momentum(const Engine::MomentumStage& stage, int64_t count);
void cpu_apply(Run weights, ConstRun update, const Apply& apply, int64_t count);
void cpu_adam(ConstRun grad, Run m, Run v, Run out,
              const AdamCoefficients& adam, int64_t count);
void cpu_adam_apply(ConstRun grad, Run m, Run v, Run weights,
                    const AdamCoefficients& adam, const Apply& apply,
                    int64_t count);
// y = alpha·x + beta·y; with beta 0 the old y is ignored.
void cpu_axpby(Run y, double alpha, ConstRun x, double beta, int64_t count);
bool cpu_all_finite(ConstRun run, int64_t count);
uint32_t cpu_largest_bits(ConstRun run, int64_t count);
// Sets x = factor·x and returns the largest bits afterwards.
uint32_t cpu_scale_and_look(Run run, double factor, int64_t count);
WideSum cpu_sum_of_squares(ConstRun run, int64_t count, int exponent);
void cpu_round_to_bf16(uint16_t* to, const float* from, int64_t count);
void cpu_round_weights(uint16_t* to, const float* from, int64_t count);
void cpu_split_masters(uint16_t* weights, uint16_t* remainders,
                       const float* from, int64_t count);
void cpu_join_masters(float* to, const uint16_t* weights,
                      const uint16_t* remainders, int64_t count);
void cpu_widen_bf16(float* to, const uint16_t* from, int64_t count);
// sum may be a or b.
void cpu_add(float* sum, const float* a, const float* b, int64_t count);

}  // namespace canzona::linalg
