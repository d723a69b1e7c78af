// Checks nccl_library.h against NCCL's own header at compile time.
#include <nccl.h>

#include <type_traits>

#include "canzona/comm/nccl/nccl_library.h"

namespace canzona {
namespace {

static_assert(NCCL_VERSION_CODE >= kOldestNccl);

template <class Ours, class Theirs>
constexpr bool same_value(Ours ours, Theirs theirs) {
  return sizeof(Ours) == sizeof(Theirs) &&
         static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(same_value(NcclResult::kSuccess, ncclSuccess));
static_assert(same_value(NcclResult::kUnhandledCudaError,
                         ncclUnhandledCudaError));
static_assert(same_value(NcclResult::kSystemError, ncclSystemError));
static_assert(same_value(NcclResult::kInternalError, ncclInternalError));
static_assert(same_value(NcclResult::kInvalidArgument, ncclInvalidArgument));
static_assert(same_value(NcclResult::kInvalidUsage, ncclInvalidUsage));
static_assert(same_value(NcclResult::kRemoteError, ncclRemoteError));
static_assert(same_value(NcclResult::kInProgress, ncclInProgress));
static_assert(same_value(NcclType::kUint8, ncclUint8));
static_assert(same_value(NcclType::kInt64, ncclInt64));
static_assert(same_value(NcclType::kUint64, ncclUint64));
static_assert(same_value(NcclType::kFloat32, ncclFloat32));
static_assert(same_value(NcclReduction::kSum, ncclSum));
static_assert(same_value(NcclReduction::kMax, ncclMax));
static_assert(NcclConfig::kUndefined == NCCL_CONFIG_UNDEF_INT);
#ifdef NCCL_CTA_POLICY_ZERO
static_assert(NcclConfig::kNoCtas == NCCL_CTA_POLICY_ZERO);
#endif
static_assert(NcclApi::kSymmetric == NCCL_WIN_COLL_SYMMETRIC);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(offsetof(NcclConfig, blocking) ==
              offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, min_ctas) ==
              offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(NcclConfig, net_name) ==
              offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, comm_name) ==
              offsetof(ncclConfig_t, commName));
static_assert(offsetof(NcclConfig, cta_policy) ==
              offsetof(ncclConfig_t, CTAPolicy));
static_assert(offsetof(NcclConfig, nvls_ctas) ==
              offsetof(ncclConfig_t, nvlsCTAs));

// True if our function takes the same number of arguments, of the same sizes.
template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class Back, class TheirBack, class... Ours, class... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct SameCall<Back (*)(Ours...),
                                            TheirBack (*)(Theirs...)>
    : std::bool_constant<sizeof(Back) == sizeof(TheirBack) &&
                         ((sizeof(Ours) == sizeof(Theirs)) && ...)> {
};
template <class Ours, class Theirs>
constexpr bool same_call(Ours NcclApi::*, Theirs) {
  return SameCall<Ours, Theirs>::value;
}
static_assert(same_call(&NcclApi::get_version, &ncclGetVersion));
static_assert(same_call(&NcclApi::get_unique_id, &ncclGetUniqueId));
static_assert(same_call(&NcclApi::comm_init_rank_config,
                        &ncclCommInitRankConfig));
static_assert(same_call(&NcclApi::comm_finalize, &ncclCommFinalize));
static_assert(same_call(&NcclApi::comm_destroy, &ncclCommDestroy));
static_assert(same_call(&NcclApi::comm_abort, &ncclCommAbort));
static_assert(same_call(&NcclApi::comm_get_async_error,
                        &ncclCommGetAsyncError));
static_assert(same_call(&NcclApi::get_error_string, &ncclGetErrorString));
static_assert(same_call(&NcclApi::get_last_error, &ncclGetLastError));
static_assert(same_call(&NcclApi::all_reduce, &ncclAllReduce));
static_assert(same_call(&NcclApi::broadcast, &ncclBroadcast));
static_assert(same_call(&NcclApi::reduce, &ncclReduce));
static_assert(same_call(&NcclApi::all_gather, &ncclAllGather));
static_assert(same_call(&NcclApi::reduce_scatter, &ncclReduceScatter));
static_assert(same_call(&NcclApi::send, &ncclSend));
static_assert(same_call(&NcclApi::recv, &ncclRecv));
static_assert(same_call(&NcclApi::group_start, &ncclGroupStart));
static_assert(same_call(&NcclApi::group_end, &ncclGroupEnd));
static_assert(same_call(&NcclApi::mem_alloc, &ncclMemAlloc));
static_assert(same_call(&NcclApi::mem_free, &ncclMemFree));
static_assert(same_call(&NcclApi::window_register, &ncclCommWindowRegister));
static_assert(same_call(&NcclApi::window_deregister,
                        &ncclCommWindowDeregister));
static_assert(same_call(&NcclApi::comm_register, &ncclCommRegister));
static_assert(same_call(&NcclApi::comm_deregister, &ncclCommDeregister));

}  // namespace
}  // namespace canzona
