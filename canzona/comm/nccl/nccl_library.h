// NCCL as it is found when the program runs.
//
//   if (nccl_is_built()) std::cout << nccl_description();   // "NCCL 2.28.9, …"
//   const NcclApi& nccl = load_nccl();
//
// The library is opened at the first call of load_nccl() and stays: the one
// that the system names libnccl.so.2, or that was there when Canzona was built
// if the first is missing or too old. Programs start without one. no_nccl.cc
// answers in a build without NCCL. Any thread may call.
#pragma once

#include <string>

#include "canzona/comm/nccl/nccl_api.h"

namespace canzona {

inline constexpr int kOldestNccl = 22707;

bool nccl_is_built();

// "NCCL 2.28.9 (/usr/lib/…/libnccl.so.2)", or why there is none.
std::string nccl_description();

// UsageError, with the versions and how to get one, if there is none or it is
// older than kOldestNccl.
const NcclApi& load_nccl();

// "2.28.9" for 22809.
std::string nccl_version_text(int version);
// The version of a table of functions; InternalError if it does not tell.
int nccl_version_of(const NcclApi& nccl);

}  // namespace canzona
