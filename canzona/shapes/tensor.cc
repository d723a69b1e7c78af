#include "canzona/shapes/tensor.h"

#include "canzona/base/enum_names.h"

namespace canzona {
namespace {

constexpr EnumNames<Role, 6> kRoles{{{Role::kMatrix, "matrix"},
                                     {Role::kEmbedding, "embedding"},
                                     {Role::kHead, "head"},
                                     {Role::kRouter, "router"},
                                     {Role::kNorm, "norm"},
                                     {Role::kBias, "bias"}}};

constexpr EnumNames<Cut, 3> kCuts{
    {{Cut::kNone, "none"}, {Cut::kRows, "rows"}, {Cut::kColumns, "columns"}}};

}  // namespace

std::string_view to_string(Role role) { return name_of(kRoles, role); }
std::string_view to_string(Cut cut) { return name_of(kCuts, cut); }
Role parse_role(std::string_view text) {
  return value_of(kRoles, text, "role");
}
Cut parse_cut(std::string_view text) { return value_of(kCuts, text, "tp cut"); }

}  // namespace canzona
