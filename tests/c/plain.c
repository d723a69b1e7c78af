/* The header is plain C: this is compiled as C99, pedantically, and takes one
 * step of AdamW on three numbers. */
#include <stdio.h>
#include <string.h>

#include "canzona/c/canzona.h"

static const char request[] =
    "{\"canzona_storage\": 1, \"world\": 1,"
    " \"groups\": [{\"rule\": \"adamw\", \"options\": {}},"
    "             {\"rule\": \"muon\", \"options\": {\"device\": \"cpu\"}}],"
    " \"tensors\": [{\"name\": \"b\", \"shape\": [3], \"dtype\": \"fp32\","
    "               \"group\": 0, \"stored\": [[[[0], [3]]]]}]}";

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, canzona_error());
  return 1;
}

static int tell(void) {
  if (canzona_abi() != CANZONA_ABI) return fail("canzona_abi");
  printf("canzona %s: %s\n", canzona_version(), canzona_describe("cpu"));
  if (canzona_rules() == NULL || strstr(canzona_rules(), "muon") == NULL)
    return fail("canzona_rules");
  if (canzona_describe("tpu") != NULL ||
      canzona_error_kind() != CANZONA_USAGE_ERROR)
    return fail("an unknown device");
  return 0;
}

int main(void) {
  float weights[3] = {1, 2, 3}, gradient[3] = {1, -1, 0.5f};
  float m[3] = {0, 0, 0}, v[3] = {0, 0, 0};
  int64_t numbers[CANZONA_NUMBERS], count = 1;
  double rates[2] = {0.1, 0.1};
  void* weight = weights;
  float* states[2];
  float slots[1];
  canzona_memory memory;
  canzona_gradient gradients[1];
  canzona_outcome outcome;
  canzona_plan* plan;
  canzona_step* step;

  if (tell() != 0) return 1;
  plan = canzona_plan_new(request, (int64_t)strlen(request));
  if (plan == NULL) return fail("canzona_plan_new");
  step = canzona_step_new(plan, 0, "cpu", NULL, 1, NULL);
  if (step == NULL) return fail("canzona_step_new");
  puts(canzona_step_layout(step));

  states[0] = m;
  states[1] = v;
  memset(&memory, 0, sizeof memory);
  memory.weights = &weight;
  memory.states = states;
  memory.slots = slots;
  memory.numbers = numbers;
  if (canzona_step_bind(step, &memory) != 0) return fail("canzona_step_bind");
  gradients[0].data = gradient;
  gradients[0].dtype = CANZONA_FP32;
  if (canzona_step_begin(step, gradients, &count, rates) != 0)
    return fail("canzona_step_begin");
  if (canzona_step_run(step, 0) != 0) return fail("canzona_step_run");
  if (canzona_step_end(step) != 0) return fail("canzona_step_end");
  if (canzona_step_outcome(step, &outcome) != 0 || outcome.skipped)
    return fail("canzona_step_outcome");
  printf("%g %g %g\n", weights[0], weights[1], weights[2]);
  if (!(weights[0] < 1 && weights[1] > 2 && weights[2] < 3)) return 1;
  canzona_step_free(step);
  canzona_plan_free(plan);
  return 0;
}
