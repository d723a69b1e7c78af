/* Canzona's C interface: plans for storage that is given, and one rank's step
 * on memory of the caller's.
 *
 *   canzona_plan *plan = canzona_plan_placed(json, length);
 *   canzona_step *step = canzona_step_new(plan, rank, "cpu", NULL, 1, NULL);
 *   … canzona_step_layout(step) says which memory it wants and what it does …
 *   canzona_step_bind(step, &memory);
 *   canzona_step_begin(step, gradients, numbers_of_steps, rates);
 *   for each action of the layout, in order:
 *     compute:               canzona_step_run(step, action)
 *     all_to_all, broadcast: the caller's matter, on the slots
 *     wait:                  for what was issued before
 *   canzona_step_end(step)
 *
 * Functions that return int return 0, or -1; those that return a pointer return
 * NULL; canzona_error() says why then, for the calling thread. Texts belong to
 * the handle and live until it is freed. One thread at a time uses a handle,
 * different ones may be used at once. In a forked child a handle refuses to do
 * anything but be freed, which does nothing there. */
#ifndef CANZONA_C_CANZONA_H
#define CANZONA_C_CANZONA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CANZONA_API __attribute__((visibility("default")))
#define CANZONA_ABI 1

typedef struct canzona_plan canzona_plan;
typedef struct canzona_step canzona_step;

CANZONA_API int32_t canzona_abi(void); /* CANZONA_ABI of the library */
CANZONA_API const char* canzona_version(void);
/* The calling thread's last error: its text, "" if there was none, and whose it
 * is: the caller's (USAGE), the data's, memory that ran out, ours. */
enum {
  CANZONA_NO_ERROR = 0,
  CANZONA_USAGE_ERROR = 1,
  CANZONA_NUMERICAL_ERROR = 2,
  CANZONA_MEMORY_ERROR = 3,
  CANZONA_INTERNAL_ERROR = 4
};
CANZONA_API const char* canzona_error(void);
CANZONA_API int32_t canzona_error_kind(void);
/* Rules with their options, presets and meanings, as JSON. */
CANZONA_API const char* canzona_rules(void);
/* What computes: "OpenBLAS 0.3.21 …, bf16 by amx". */
CANZONA_API const char* canzona_describe(const char* device);

/* Plans (docs/plan.md: the JSON of placed storage, and of its plan). */
CANZONA_API canzona_plan* canzona_plan_placed(const char* json, int64_t length);
CANZONA_API const char* canzona_plan_json(canzona_plan* plan);
CANZONA_API const char* canzona_plan_digest(canzona_plan* plan);
/* What a rank does in a step, in words; rank -1: the plan as a whole. */
CANZONA_API const char* canzona_plan_explain(canzona_plan* plan, int32_t rank);
CANZONA_API const char* canzona_plan_html(canzona_plan* plan);
CANZONA_API void canzona_plan_free(canzona_plan* plan);

/* Scratch memory of a device; NULL: the library's own. */
typedef struct {
  void* (*allocate)(void* context, int64_t bytes); /* NULL: there is none */
  void (*release)(void* context, void* memory);
  void* context;
} canzona_allocator;

/* `device` is "cpu" or "cuda:N". On a GPU all work is issued to `stream`
 * (cudaStream_t; NULL: the default stream). `threads`: of a CPU, at most. */
CANZONA_API canzona_step* canzona_step_new(const canzona_plan* plan,
                                           int32_t rank, const char* device,
                                           void* stream, int32_t threads,
                                           const canzona_allocator* scratch);
/* JSON: the tensors' states on this rank (name, shape, dtype, initial value),
 * the bytes of the slots, the groups of ranks, the actions. */
CANZONA_API const char* canzona_step_layout(canzona_step* step);
CANZONA_API void canzona_step_free(canzona_step* step);

/* Memory of the caller's, in the order of the layout; it stays where it is
 * until it is bound anew. Addresses are multiples of what an element takes:
 * 4 bytes of fp32 and of the slots, 2 of bf16, 8 of the numbers. */
typedef struct {
  void* const* weights;  /* by tensor, in the tensor's dtype; NULL: none here */
  float* const* masters; /* by tensor; NULL where weights are fp32 */
  float* const* states;  /* by memory of the layout */
  void* slots;
  int64_t* numbers; /* CANZONA_NUMBERS of them, in the device's memory */
} canzona_memory;
#define CANZONA_NUMBERS 16
CANZONA_API int canzona_step_bind(canzona_step* step,
                                  const canzona_memory* memory);

/* A group's options anew, as JSON: {"weight_decay": "0.1"}. States stay. */
CANZONA_API int canzona_step_options(canzona_step* step, int32_t group,
                                     const char* json, int64_t length);

enum { CANZONA_FP32 = 0, CANZONA_BF16 = 1 };
typedef struct {
  /* NULL: no gradient, the tensor is left alone. Where this rank stores nothing
   * of a tensor that has a gradient: any other address. */
  void* data;
  int32_t dtype;
} canzona_gradient;

/* `gradients`: by tensor, those of this rank's piece. `steps`: by tensor, this
 * update's number, from 1. `rates`: learning rates by group, from 0 on. */
CANZONA_API int canzona_step_begin(canzona_step* step,
                                   const canzona_gradient* gradients,
                                   const int64_t* steps, const double* rates);

/* The look at gradients, between begin and the first action. Nothing waits for
 * a device. look() fills numbers[0..3], which the caller reduces over all ranks
 * by MAX; squares() then fills numbers[4..11], which the caller reduces by SUM;
 * clip() multiplies gradients by min(1, limit / norm), in place. judge() sets
 * the flag that all later actions obey: `skip` 1: gradients that are not finite
 * leave everything as it was, 0: they pass. */
CANZONA_API int canzona_step_look(canzona_step* step);
CANZONA_API int canzona_step_squares(canzona_step* step);
CANZONA_API int canzona_step_clip(canzona_step* step, double limit);
CANZONA_API int canzona_step_judge(canzona_step* step, int32_t skip);

CANZONA_API int canzona_step_run(canzona_step* step, int32_t action);
CANZONA_API int canzona_step_end(canzona_step* step);
/* Gives up a step that was begun, as after a collective that failed: weights
 * and states may be those of a part of it. Another may begin then, or the
 * handle be freed. Nothing happens where no step was begun. */
CANZONA_API int canzona_step_abandon(canzona_step* step);

/* What became of the last step; waits for a device. */
typedef struct {
  int32_t skipped;
  int32_t nonfinite_tensor; /* -1: none */
  int32_t unlike;           /* 1: ranks had gradients of different tensors */
  double norm; /* of all gradients, if squares() was called; infinity if one of
                * them is not finite */
} canzona_outcome;
CANZONA_API int canzona_step_outcome(canzona_step* step,
                                     canzona_outcome* outcome);

#ifdef __cplusplus
}
#endif

#endif
