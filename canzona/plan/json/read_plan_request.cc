// Reads what was asked for: mesh, rule, options, and the traffic that follows.
#include "canzona/base/text.h"
#include "canzona/plan/json/plan_schema.h"
#include "canzona/plan/json/read_plan_parts.h"
#include "canzona/plan/strategy.h"

namespace canzona {
namespace {

class RequestReader {
 public:
  RequestReader(const Json& root, const PlanValues& in, SettledRequest& plan)
      : root_(root), in_(in), where_(in.where()), plan_(plan) {}

  void run() {
    read_mesh(get_member(root_, "mesh", where_));
    read_rule(get_member(root_, "rule", where_));
    read_options(get_member(root_, "options", where_));
    read_traffic();
  }

 private:
  int64_t whole(const Json& object, const char* key, int64_t low) const {
    return get_integer(object, key, low, INT64_MAX, where_);
  }

  void read_mesh(const Json& mesh) {
    require_known_keys(mesh, {"dp", "cp", "tp", "pp", "ep"}, where_);
    std::string words;
    for (const char* axis : {"dp", "cp", "tp", "pp", "ep"}) {
      words += cat(words.empty() ? "" : ",", axis, "=",
                   get_integer(mesh, axis, 1, kMaxWorld, where_));
    }
    plan_.mesh = parse_mesh(words);
  }

  void read_rule(const Json& rule) {
    require_known_keys(rule, {"name", "options"}, where_);
    plan_.rule = get_string(rule, "name", where_);
    const Json& options = get_member(rule, "options", where_);
    if (!options.is_object()) in_.fail("rule options: expected an object");
    for (const auto& [key, value] : options.items()) {
      plan_.rule_options[key] = in_.text(value, "rule option");
    }
    make_rule_facts(plan_.rule, plan_.rule_options);  // refuses what is unknown
  }

  void read_options(const Json& o) {
    require_known_keys(
        o,
        {"strategy", "micro_groups", "split", "bucket_elements", "alpha",
         "weight", "capacity_bytes", "memory_cap_bytes", "ranks_per_node",
         "parameters", "links", "zero", "teams", "exchange"},
        where_);
    PlanOptions& out = plan_.options;
    out.strategy = get_string(o, "strategy", where_);
    out.micro_groups = get_string(o, "micro_groups", where_);
    out.splits = parse_splits(get_string(o, "split", where_));
    out.bucket_elements = whole(o, "bucket_elements", 1);
    out.alpha = get_number(o, "alpha", where_);
    out.weight = parse_weight(get_string(o, "weight", where_));
    out.capacity_bytes = whole(o, "capacity_bytes", 0);
    out.memory_cap_bytes = whole(o, "memory_cap_bytes", 0);
    out.ranks_per_node = static_cast<int32_t>(
        get_integer(o, "ranks_per_node", 1, kMaxWorld, where_));
    out.parameters = parse_parameter_dtype(get_string(o, "parameters", where_));
    out.links = links(get_member(o, "links", where_));
    read_zero(o, out.zero);
    read_version(o);
    check_options(out);
    if (!out.micro_groups.empty()) find_micro_group_mode(out.micro_groups);
  }

  // Version 2 is that of plans that may have teams, or that exchange strips.
  void read_version(const Json& o) const {
    const int64_t version =
        get_integer(root_, "version", kPlanVersion, kTeamPlanVersion, where_);
    plan_.options.teams = o.contains("teams")
                              ? parse_teams(get_string(o, "teams", where_))
                              : kTeamsOff;
    plan_.options.exchange = ExchangeBy::kRounds;
    if (o.contains("exchange")) {
      plan_.options.exchange =
          parse_exchange(get_string(o, "exchange", where_));
      if (plan_.options.exchange != ExchangeBy::kStrips)
        in_.fail(cat("exchange ", to_string(plan_.options.exchange),
                     ": expected strips, or no such member"));
    }
    if (version != version_of(plan_.options))
      in_.fail(cat("version ", version, " with teams ",
                   teams_text(plan_.options.teams), " and exchange ",
                   to_string(plan_.options.exchange),
                   ": a plan that may have teams, or exchanges strips, is "
                   "version ",
                   kTeamPlanVersion, ", any other ", kPlanVersion));
  }

  void read_zero(const Json& options, ZeroOptions& out) const {
    out.sizes = with_states(out.sizes, plan_.mesh.homes());
    const auto found = options.find("zero");
    if (found == options.end()) return;
    const Json& zero = *found;
    require_known_keys(zero,
                       {"z1", "z2", "z3", "experts", "message", "prefetch",
                        "replica_sum", "collectives"},
                       where_);
    const auto size = [&](const char* key) {
      return static_cast<int32_t>(get_integer(zero, key, 1, kMaxWorld, where_));
    };
    out.sizes = {size("z1"), size("z2"), size("z3")};
    if (zero.contains("experts")) {
      const Json& experts = in_.row(zero["experts"], 3, "experts");
      const auto of_experts = [&](size_t i) {
        return in_.index(experts[i], 1, kMaxWorld, "size of experts");
      };
      out.experts = {of_experts(0), of_experts(1), of_experts(2)};
    }
    out.message = parse_message_unit(get_string(zero, "message", where_));
    out.prefetch = parse_prefetch(
        cat(get_integer(zero, "prefetch", 0, INT32_MAX, where_)));
    out.replica_sum =
        parse_replica_sum(get_string(zero, "replica_sum", where_));
    if (zero.contains("collectives"))
      out.reach = read_reach(get_string(zero, "collectives", where_));
  }

  Reach read_reach(const std::string& text) const {
    const Reach reach = parse_reach(text);
    if (reach == Reach::kAuto)
      in_.fail("collectives: 'auto' is a wish; a plan has direct or node");
    return reach;
  }

  Links links(const Json& l) const {
    require_known_keys(l,
                       {"intra_bytes_per_second", "inter_bytes_per_second",
                        "latency_seconds", "intra_latency_seconds", "nominal"},
                       where_);
    Links links;
    links.intra_bytes_per_second = in_.positive(l, "intra_bytes_per_second");
    links.inter_bytes_per_second = in_.positive(l, "inter_bytes_per_second");
    links.latency_seconds = get_number(l, "latency_seconds", where_);
    links.nominal = get_bool(l, "nominal", where_);
    if (l.contains("intra_latency_seconds"))
      links.intra_latency_seconds =
          get_number(l, "intra_latency_seconds", where_);
    if (links.latency(true) < 0 || links.latency(false) < 0)
      in_.fail("links: negative latency");
    return links;
  }

  // Traffic follows from the strategy; what else a file says is a mistake.
  void read_traffic() {
    const std::string name = get_string(root_, "traffic", where_);
    plan_.traffic = find_strategy(plan_.options.strategy).traffic;
    if (name != traffic_name(plan_.traffic)) {
      in_.fail(cat("traffic: ", quoted(name), ", but strategy ",
                   plan_.options.strategy, " means ",
                   traffic_name(plan_.traffic)));
    }
  }

  const Json& root_;
  const PlanValues& in_;
  const std::string& where_;
  SettledRequest& plan_;
};

}  // namespace

void read_plan_request(const Json& root, const PlanValues& values,
                       SettledRequest& plan) {
  RequestReader(root, values, plan).run();
}

}  // namespace canzona
