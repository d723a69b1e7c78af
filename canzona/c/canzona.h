/* Canzona's C interface: plans for given storage, and one rank's step on the
 * caller's memory.
 *
 *   canzona_plan *plan = canzona_plan_new(json, length);
 *   canzona_step *step = canzona_step_new(plan, rank, "cpu", NULL, 1, NULL);
 *   … canzona_step_layout(step) says which memory it needs and what it does …
 *   canzona_step_bind(step, &memory);
 *   canzona_step_begin(step, gradients, numbers_of_steps, rates);
 *   for each action of the layout, in order:
 *     compute:               canzona_step_run(step, action)
 *     all_to_all, broadcast: issued by the caller, on the slots
 *     exchange:              the same, on the rooms of teams, between pairs
 *     wait:                  for what was issued before
 *   canzona_step_end(step)
 *
 * On failure, functions that return int return -1 (otherwise 0), and those that
 * return a pointer return NULL; canzona_error() then gives the reason, for the
 * calling thread. Texts belong to the handle and live until it is freed. One
 * thread at a time may use a handle; different handles may be used at the same
 * time. In a forked child every call with a parent's handle fails, except
 * freeing it, which does nothing there. */
#ifndef CANZONA_C_CANZONA_H
#define CANZONA_C_CANZONA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CANZONA_API __attribute__((visibility("default")))
#define CANZONA_ABI 3

typedef struct canzona_plan canzona_plan;
typedef struct canzona_step canzona_step;

CANZONA_API int32_t canzona_abi(void); /* CANZONA_ABI of the library */
CANZONA_API const char* canzona_version(void);
/* The calling thread's last error: its text ("" if there was none), and its
 * kind: the caller's mistake (USAGE), bad numbers, out of memory, or a bug. */
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
/* Describes a device: "OpenBLAS 0.3.21 …, bf16 by amx". */
CANZONA_API const char* canzona_describe(const char* device);

/* QK-clip: what rows of queries and keys are multiplied by after a step.
 * `largest` has the largest logit of each query head, of which heads / groups
 * share a key. `factors` gets, one after another, those of queries by head, of
 * their parts that meet a key shared by all heads, and of keys by group.
 * `alone`: each query head takes all of its own factor, keys none. */
CANZONA_API int canzona_qk_factors(const double* largest, int32_t heads,
                                   int32_t groups, double tau, double alpha,
                                   int32_t alone, double* factors);

/* Plans (docs/plan.md: the JSON of given storage, and of its plan). */
CANZONA_API canzona_plan* canzona_plan_new(const char* json, int64_t length);
CANZONA_API const char* canzona_plan_json(canzona_plan* plan);
CANZONA_API const char* canzona_plan_digest(canzona_plan* plan);
/* Describes what a rank does in a step; rank -1: the plan as a whole. */
CANZONA_API const char* canzona_plan_explain(canzona_plan* plan, int32_t rank);
CANZONA_API const char* canzona_plan_html(canzona_plan* plan);
CANZONA_API void canzona_plan_free(canzona_plan* plan);

/* Allocates scratch memory of a device; if NULL, the library uses its own. */
typedef struct {
  void* (*allocate)(void* context, int64_t bytes); /* NULL: none left */
  void (*release)(void* context, void* memory);
  void* context;
} canzona_allocator;

/* `device` is "cpu" or "cuda:N". On a GPU all work is issued to `stream`
 * (cudaStream_t; NULL: the default stream). `threads` is the largest number of
 * threads on a CPU. */
CANZONA_API canzona_step* canzona_step_new(const canzona_plan* plan,
                                           int32_t rank, const char* device,
                                           void* stream, int32_t threads,
                                           const canzona_allocator* scratch);
/* Returns JSON: the tensors' states on this rank (name, shape, dtype, initial
 * value), the sizes of slots and rooms, the groups of ranks, the actions. */
CANZONA_API const char* canzona_step_layout(canzona_step* step);
CANZONA_API void canzona_step_free(canzona_step* step);

/* The caller's memory, in the order of the layout; it must not move until it is
 * bound again. Addresses must be aligned to the element: 4 bytes for fp32 and
 * the slots, 2 for bf16, 8 for the numbers. */
typedef struct {
  void* const* weights; /* by tensor, in the tensor's dtype; NULL: none here */
  /* By tensor, NULL if weights are fp32: fp32, or 16 bits each if the plan has
   * "master": "remainder". */
  void* const* masters;
  float* const* states; /* by memory of the layout */
  void* slots;
  void* rooms; /* of teams; aligned to 64 bytes; NULL if they have no bytes */
  int64_t* numbers; /* CANZONA_NUMBERS of them, in the device's memory */
} canzona_memory;
#define CANZONA_NUMBERS 16
CANZONA_API int canzona_step_bind(canzona_step* step,
                                  const canzona_memory* memory);

/* Replaces a group's options, given as JSON: {"weight_decay": "0.1"}. States
 * are kept. */
CANZONA_API int canzona_step_options(canzona_step* step, int32_t group,
                                     const char* json, int64_t length);

enum { CANZONA_FP32 = 0, CANZONA_BF16 = 1 };
typedef struct {
  /* NULL: no gradient; the tensor is not updated. If this rank stores nothing
   * of a tensor that has a gradient, pass any other address. */
  void* data;
  int32_t dtype;
} canzona_gradient;

/* `gradients` are by tensor, for this rank's piece. `steps` are by tensor, the
 * number of this update, from 1. `rates` are learning rates by group, at least
 * 0. */
CANZONA_API int canzona_step_begin(canzona_step* step,
                                   const canzona_gradient* gradients,
                                   const int64_t* steps, const double* rates);

/* Gradient checks, between begin and the first action. None waits for a device.
 * look() fills numbers[0..3], which the caller reduces over all ranks by MAX;
 * squares() then fills numbers[4..11], which the caller reduces by SUM; clip()
 * multiplies gradients by min(1, limit / norm), in place. judge() sets the flag
 * that all later actions obey: with `skip` 1, gradients that are not finite
 * leave everything unchanged; with 0 they are applied. */
CANZONA_API int canzona_step_look(canzona_step* step);
CANZONA_API int canzona_step_squares(canzona_step* step);
CANZONA_API int canzona_step_clip(canzona_step* step, double limit);
CANZONA_API int canzona_step_judge(canzona_step* step, int32_t skip);

CANZONA_API int canzona_step_run(canzona_step* step, int32_t action);
/* Writes 1 to `needed` if an exchange of a team moves something when its tensor
 * has the number of this update, else 0; the same on all ranks. */
CANZONA_API int canzona_step_needs(canzona_step* step, int32_t action,
                                   int64_t number, int32_t* needed);
CANZONA_API int canzona_step_end(canzona_step* step);
/* Abandons a step that was begun, for example after a failed collective:
 * weights and states may be partly updated. Afterwards another step may begin,
 * or the handle may be freed. Does nothing if no step was begun. */
CANZONA_API int canzona_step_abandon(canzona_step* step);

/* Replaces all calls from begin to end while the caller captures the step's
 * stream into a CUDA graph: each replay of the graph is a step on these
 * gradients, on a plan of one rank. Host memory of canzona_replay must outlive
 * every replay, and so must the handle, which nobody may use meanwhile. One
 * step must have been made before, without a capture. */
typedef struct {
  double number;
  const void* live;  /* on the device, read by each replay; NULL: the number */
  int32_t is_double; /* 0: `live` is a float */
} canzona_rate;
typedef struct {
  float* const* counts; /* by tensor: its updates so far; a replay adds 1 */
  const canzona_rate* rates; /* by group; they are copied */
  int64_t* skipped;          /* counts replays that changed nothing */
  int64_t* refused;          /* counts those of them that no longer fit */
  double limit;              /* of the gradient's norm; 0: none */
  int32_t skip;              /* as for judge() */
} canzona_replay;
CANZONA_API int canzona_step_capture(canzona_step* step,
                                     const canzona_gradient* gradients,
                                     const canzona_replay* replay);

/* The outcome of the last step; reading it waits for the device. */
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
