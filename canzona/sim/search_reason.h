// Explains why a choice was taken or not.
#pragma once

#include <string>

#include "canzona/sim/search.h"

namespace canzona {

// "z1=8,z2=4,z3=4", with the strategy if several were tried.
std::string choice_name(const ZeroChoice& choice, const ZeroSearch& search);

// "needs 1.20 GiB more than the cap of 2.00 GiB", "3.1 % slower than
// z1=8,z2=4,z3=4: 2.1x its slow bytes". The ranking must already be sorted.
std::string reason_for(const RankedZero& ranked, const ZeroSearch& search);

// The same without the name of the choice that it is compared with, for tables
// that show it.
std::string brief_reason(const RankedZero& ranked, const ZeroSearch& search);

}  // namespace canzona
