#include "canzona/plan/zero.h"

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

const std::vector<std::string> kNames = {
    "none", "zero1", "zero2", "zero3", "replica:Z", "hier:Z", "z1=,z2=,z3="};

// `also` is a word that the caller accepts in addition; "" if there is none.
[[noreturn]] void unknown(std::string_view option, std::string_view text,
                          std::string_view also) {
  std::vector<std::string> names = kNames;
  if (!also.empty()) names.emplace_back(also);
  throw UsageError(cat(option, " ", quoted(text),
                       ": expected none, zero1, zero2, zero3, replica:Z, "
                       "hier:Z",
                       also.empty() ? "" : ", ", also, " or z1=..,z2=..,z3=..",
                       did_you_mean(text, names)));
}

int32_t parse_size(std::string_view text, const std::string& what) {
  return static_cast<int32_t>(parse_integer(text, 1, kMaxWorld, what));
}

ZeroSizes parse_triple(std::string_view option, std::string_view text,
                       std::string_view also) {
  ZeroSizes sizes;
  std::vector<std::string> seen;
  for (const std::string& word : split_text(text, ',')) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) unknown(option, text, also);
    const std::string name = word.substr(0, equals);
    for (const std::string& other : seen)
      if (other == name)
        throw UsageError(cat(option, " ", quoted(text), ": ", name, " twice"));
    seen.push_back(name);
    const int32_t size = parse_size(std::string_view(word).substr(equals + 1),
                                    cat(option, " ", name));
    if (name == "z1")
      sizes.z1 = size;
    else if (name == "z2")
      sizes.z2 = size;
    else if (name == "z3")
      sizes.z3 = size;
    else
      throw UsageError(cat(option, " ", quoted(text), ": unknown size ",
                           quoted(name), ", expected z1, z2 or z3"));
  }
  return sizes;
}

std::vector<int32_t> divisors(int32_t number) {
  std::vector<int32_t> out;
  for (int32_t d = 1; d <= number; ++d)
    if (number % d == 0) out.push_back(d);
  return out;
}

void require_divides(std::string_view option, const char* name, int32_t size,
                     int32_t whole, const std::string& what) {
  if (whole % size == 0) return;
  throw UsageError(
      cat(option, ": ", name, " = ", size, " does not divide ", what));
}

}  // namespace

std::string_view to_string(MessageUnit unit) {
  return unit == MessageUnit::kModule ? "module" : "parameter";
}

MessageUnit parse_message_unit(std::string_view text) {
  if (text == "module") return MessageUnit::kModule;
  if (text == "parameter") return MessageUnit::kParameter;
  throw UsageError(cat("message ", quoted(text),
                       ": expected module or parameter",
                       did_you_mean(text, {"module", "parameter"})));
}

std::string_view to_string(Overlap overlap) {
  switch (overlap) {
    case Overlap::kNone:
      return "none";
    case Overlap::kMain:
      return "main";
    case Overlap::kBackground:
      break;
  }
  return "background";
}

Overlap parse_overlap(std::string_view text) {
  for (Overlap overlap : {Overlap::kNone, Overlap::kMain, Overlap::kBackground})
    if (text == to_string(overlap)) return overlap;
  throw UsageError(cat("overlap ", quoted(text),
                       ": expected none, main or background",
                       did_you_mean(text, {"none", "main", "background"})));
}

std::string_view to_string(ReplicaSum sum) {
  return sum == ReplicaSum::kScatter ? "scatter" : "allreduce";
}

ReplicaSum parse_replica_sum(std::string_view text) {
  if (text == "scatter") return ReplicaSum::kScatter;
  if (text == "allreduce") return ReplicaSum::kAllReduce;
  throw UsageError(cat("replica-sum ", quoted(text),
                       ": expected scatter or allreduce",
                       did_you_mean(text, {"scatter", "allreduce"})));
}

std::string_view to_string(Reach reach) {
  switch (reach) {
    case Reach::kDirect:
      return "direct";
    case Reach::kPerNode:
      return "node";
    case Reach::kAuto:
      break;
  }
  return "auto";
}

Reach parse_reach(std::string_view text) {
  for (const Reach reach : {Reach::kDirect, Reach::kPerNode, Reach::kAuto})
    if (text == to_string(reach)) return reach;
  throw UsageError(cat("collectives ", quoted(text),
                       ": expected direct, node or auto",
                       did_you_mean(text, {"direct", "node", "auto"})));
}

int32_t parse_prefetch(std::string_view text, std::string_view option) {
  if (text == "auto") return kAutoPrefetch;
  constexpr int64_t kMost = 1 << 16;
  try {
    return static_cast<int32_t>(parse_integer(text, 0, kMost, option));
  } catch (const UsageError&) {
    throw UsageError(cat(option, " ", quoted(text),
                         ": expected auto or a whole number from 0 to ",
                         kMost));
  }
}

ZeroSizes parse_zero(std::string_view text, int32_t homes,
                     std::string_view option, std::string_view also) {
  if (text == "none") return {1, 1, 1};
  if (text == "zero1") return {homes, 1, 1};
  if (text == "zero2") return {homes, homes, 1};
  if (text == "zero3") return {homes, homes, homes};
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view name = text.substr(0, colon);
    if (name != "replica" && name != "hier") unknown(option, text, also);
    const int32_t z =
        parse_size(text.substr(colon + 1), cat(option, " ", name));
    return {name == "hier" ? homes : z, z, z};
  }
  return with_states(parse_triple(option, text, also), homes);
}

std::string to_string(const ZeroSizes& sizes) {
  return cat("z1=", sizes.z1, ",z2=", sizes.z2, ",z3=", sizes.z3);
}

ZeroSizes with_states(ZeroSizes sizes, int32_t homes) {
  if (sizes.z1 == 0) sizes.z1 = homes;
  return sizes;
}

void check_zero(const ZeroSizes& sizes, int32_t homes,
                std::string_view option) {
  const auto [z1, z2, z3] = with_states(sizes, homes);
  require_divides(option, "z1", z1, homes,
                  cat("the ", homes, " data-parallel ranks"));
  require_divides(option, "z2", z2, z1, cat("z1 = ", z1));
  require_divides(option, "z3", z3, z1, cat("z1 = ", z1));
  if (z2 % z3 == 0 || z3 % z2 == 0) return;
  throw UsageError(cat(option, ": neither of z2 = ", z2, " and z3 = ", z3,
                       " divides the other"));
}

ZeroOptions settled(const ZeroOptions& options, int32_t homes) {
  ZeroOptions out = options;
  if (options.experts.z1 > 0) return out;
  if (is_plain(options.sizes, homes)) {
    out = {.sizes = options.sizes};
    if (options.reach == Reach::kDirect) return out;
    out.reach = options.reach;
    out.prefetch = 0;
    return out;
  }
  if (out.sizes.places() > 1) return out;
  out.prefetch = 0;
  out.reach = Reach::kDirect;
  return out;
}

std::vector<ZeroSizes> all_zero_sizes(int32_t homes) {
  std::vector<ZeroSizes> all;
  for (int32_t z1 : divisors(homes))
    for (int32_t z2 : divisors(z1))
      for (int32_t z3 : divisors(z1))
        if (z2 % z3 == 0 || z3 % z2 == 0) all.push_back({z1, z2, z3});
  return all;
}

Mesh fold(const Mesh& mesh, const ZeroSizes& sizes) {
  const ZeroSizes all = with_states(sizes, mesh.homes());
  check_zero(all, mesh.homes());
  if (all.places() == 1 && all.z1 == mesh.homes()) return mesh;
  CANZONA_CHECK(mesh.ep == 1, "experts are to be planned apart");
  Mesh grid;
  grid.dp = all.z1 / all.places();
  grid.tp = all.places() * mesh.tp;
  grid.pp = mesh.pp;
  grid.places = all.places();
  grid.near = all.near();
  return grid;
}

std::string zero_name(const ZeroSizes& sizes, int32_t homes) {
  const ZeroSizes z = with_states(sizes, homes);
  for (const char* name : {"none", "zero1", "zero2", "zero3"}) {
    if (parse_zero(name, homes) == z) return name;
  }
  if (z.z2 != z.z3) return to_string(z);
  if (z.z1 == homes) return cat("hier:", z.z2);
  return z.z1 == z.z2 ? cat("replica:", z.z2) : to_string(z);
}

}  // namespace canzona
