#include "canzona/report/mesh_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/page.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/zero_view.h"
#include "canzona/sim/zero_ranking.h"

namespace canzona::report {
namespace {

constexpr size_t kMeshLabel = 15;

// The parts of an iteration, which add up to it.
struct TimePart {
  const char* heading;  // in tables
  const char* key;      // in JSON
  double (*seconds)(const MeshTimeParts&);
  const char* what;  // "compute waits 120 ms for …"
};

constexpr TimePart kTimeParts[] = {
    {">compute", "compute_seconds",
     [](const MeshTimeParts& p) { return p.compute; }, ""},
    {">bubble", "bubble_seconds",
     [](const MeshTimeParts& p) { return p.bubble; }, ""},
    {">tp", "tp_seconds", [](const MeshTimeParts& p) { return p.tp_sums; },
     "sums over tp"},
    {">ep", "ep_seconds",
     [](const MeshTimeParts& p) { return p.expert_exchanges; },
     "tokens to experts and back"},
    {">pp", "pp_seconds", [](const MeshTimeParts& p) { return p.stage_sends; },
     "activations between stages"},
    {">dp", "dp_seconds",
     [](const MeshTimeParts& p) { return p.gathers + p.scatters + p.sums; },
     "parameters and gradients over dp"},
    {">step", "step_seconds", [](const MeshTimeParts& p) { return p.step; },
     ""}};

std::string sizes_text(const MeshChoice& c) {
  const std::string dense = zero_name(c.dense, c.mesh.homes());
  if (c.experts.z1 == 0) return dense;
  const std::string experts = zero_name(c.experts, c.mesh.expert_homes());
  return experts == dense ? dense : dense + " / " + experts;
}

std::string batch_text(const MeshChoice& c) {
  return cat(c.num_micro_batches, " x ", c.tokens);
}

// "dp=8,ep=8 zero1 / hier:2": what distinguishes a layout where there is little
// room.
std::string short_name(const MeshChoice& c) {
  return cat(to_string(c.mesh), " ", sizes_text(c));
}

std::string_view collectives_word(const MeshChoice& c) {
  return c.reach == Reach::kPerNode ? "node" : "direct";
}

// Relative to what the vendor states, where that is known.
const char* share_of(const ShownMeshes& shown) {
  return shown.question.work.peak_flops > 0 ? "peak" : "rate";
}

int64_t cap_of(const ShownMeshes& shown) {
  return shown.question.options.memory_cap_bytes;
}

// Everything about a layout, for programs and the page.
Members layout_members(const WeighedMesh& mesh) {
  const MeshChoice& c = mesh.choice;
  Members out = {{"name", short_name(c)},
                 {"mesh", mesh_value(c.mesh)},
                 {"zero", sizes_value(c.dense)},
                 {"zero_name", sizes_text(c)}};
  if (c.experts.z1 > 0) out.push_back({"experts", sizes_value(c.experts)});
  out.push_back({"tokens", c.tokens});
  out.push_back({"micro_batches", c.num_micro_batches});
  out.push_back({"recompute", c.recompute});
  out.push_back({"collectives", collectives_word(c)});
  out.push_back({"seconds", mesh.seconds()});
  for (const TimePart& part : kTimeParts)
    out.push_back({part.key, part.seconds(mesh.parts)});
  out.push_back({"bound_seconds", mesh.bound_seconds});
  out.push_back({"tokens_per_second", mesh.tokens_per_second});
  out.push_back({"share_of_peak", mesh.share_of_peak});
  Members memory;
  for (const MemoryPart& part : report::memory_of(mesh))
    memory.push_back({part.name, part.bytes});
  out.push_back({"memory", memory});
  out.push_back({"memory_bytes", mesh.memory_bytes()});
  out.push_back({"fast_bytes", mesh.fast_bytes});
  out.push_back({"slow_bytes", mesh.slow_bytes});
  return out;
}

void add_heading(const ShownMeshes& shown, Document& out) {
  const MeshQuestion& q = shown.question;
  out.heading(
      "Meshes",
      fmt::format(" for {}, {} ({}) on {}, {} per node: {} tokens in "
                  "sequences of {}, {} parameters",
                  printable(q.model->name), q.rule->name(), q.options.strategy,
                  counted(q.ranks, "rank"), q.options.ranks_per_node,
                  human_count(static_cast<double>(q.global_batch)),
                  grouped(q.work.compute.length),
                  to_string(q.options.parameters)));
  out.set("report", "mesh").set("model", q.model->name).set("world", q.ranks);
  out.set("rule", q.rule->name()).set("strategy", q.options.strategy);
  out.set("ranks_per_node", q.options.ranks_per_node);
  out.set("memory_cap_bytes", cap_of(shown));
  out.set("peak_flops", q.work.peak_flops);
  out.set("global_batch_tokens", q.global_batch);
  out.set("length", q.work.compute.length);
  out.set("parameters", to_string(q.options.parameters));
}

std::string found_text(const MeshAnswer& answer) {
  const MeshCounts& n = answer.counts;
  std::string text = fmt::format(
      "{} layouts: {} cannot fit and {} cannot be faster, by bounds; {} "
      "planned "
      "and simulated",
      grouped(n.in_space), grouped(n.over_cap), grouped(n.too_slow),
      grouped(n.simulated));
  if (answer.proven) return text + "; no other one is faster";
  if (n.left == 0)
    return text + fmt::format("; no other one is more than {} faster",
                              percent(answer.gap));
  return text + fmt::format("; {} are undecided, which may be up to {} faster",
                            grouped(n.left), percent(answer.gap));
}

// Says where the numbers come from, and how far the search went.
void add_basis(const ShownMeshes& shown, Document& out) {
  const MeshAnswer& answer = shown.answer;
  const MeshCounts& n = answer.counts;
  out.labelled({"", "searched", found_text(answer)}, kMeshLabel);
  out.labelled({"not_searched", "not searched", answer.not_searched,
                join(answer.not_searched, ", ")},
               kMeshLabel);
  const char* heading = "predicted from";
  for (const std::string& input : shown.inputs) {
    out.labelled({"", heading, "", input}, kMeshLabel);
    heading = "";
  }
  out.set("inputs", shown.inputs);
  out.set("search", {{"in_space", n.in_space},
                     {"refused_meshes", n.refused},
                     {"over_cap", n.over_cap},
                     {"too_slow", n.too_slow},
                     {"planned", n.planned},
                     {"simulated", n.simulated},
                     {"left", n.left},
                     {"proven", answer.proven},
                     {"gap", answer.gap}});
}

std::string sizes_in_words(const MeshChoice& c) {
  std::string text =
      cat(zero_name(c.dense, c.mesh.homes()), ": ", in_words(c.dense));
  if (c.experts.z1 > 0)
    text += cat("; experts ", zero_name(c.experts, c.mesh.expert_homes()), ": ",
                in_words(c.experts));
  return text;
}

std::string memory_text(const ShownMeshes& shown, const WeighedMesh& best) {
  const int64_t cap = cap_of(shown);
  return human_bytes(best.memory_bytes()) + " on the fullest rank" +
         (cap > 0 ? " of the cap of " + human_bytes(cap) : ", no cap");
}

// "sums over tp 1.20 s, parameters and gradients over dp 30 ms"
std::string exposed_text(const MeshTimeParts& parts) {
  std::vector<std::string> words;
  for (const TimePart& part : kTimeParts)
    if (const double seconds = part.seconds(parts);
        *part.what != '\0' && seconds > 0)
      words.push_back(cat(part.what, " ", human_seconds(seconds)));
  return words.empty() ? "nothing" : join(words, ", ");
}

void add_choice(const ShownMeshes& shown, Document& out) {
  const WeighedMesh& best = shown.answer.best();
  const MeshChoice& c = best.choice;
  const auto line = [&](const char* name, const std::string& text) {
    out.labelled({"", name, "", text}, kMeshLabel);
  };
  out.title("The fastest (predicted)");
  line("mesh", toned(Tone::kGood, to_string(c.mesh)));
  line("ZeRO", sizes_in_words(c));
  const int64_t tokens = c.num_micro_batches * c.tokens * c.mesh.homes();
  line("micro-batches",
       cat(c.num_micro_batches, " of ", grouped(c.tokens),
           " tokens on a data-parallel rank",
           tokens == shown.question.global_batch
               ? ""
               : cat(" (", grouped(tokens), " on all, to have them equal)"),
           ", ", c.recompute ? "layers recomputed" : "nothing recomputed"));
  line("collectives", c.reach == Reach::kPerNode ? "once per node" : "direct");
  line("iteration",
       fmt::format(
           "{}: compute {}, bubble {}, step {}; {} tokens/s, {} of the "
           "{} of the cards",
           human_seconds(best.seconds()), human_seconds(best.parts.compute),
           human_seconds(best.parts.bubble), human_seconds(best.parts.step),
           human_count(best.tokens_per_second), percent(best.share_of_peak),
           share_of(shown)));
  line("waits for", exposed_text(best.parts));
  line("memory", memory_text(shown, best));
  line("sends", cat(human_bytes(best.fast_bytes), " inside nodes and ",
                    human_bytes(best.slow_bytes),
                    " between them, the rank that sends most"));
}

Listing kinds_of(const ShownMeshes& shown) {
  Listing rows;
  for (const RankedMesh& one : shown.answer.kinds) {
    const WeighedMesh& mesh = one.weighed;
    const MeshChoice& c = mesh.choice;
    const Tone tone =
        &one == &shown.answer.kinds.front() ? Tone::kGood : Tone::kPlain;
    Row& row = rows.add({{"kind", "<kind", to_string(one.kind)},
                         {"", "<mesh", "", toned(tone, to_string(c.mesh))},
                         {"", "<zero", sizes_text(c)},
                         {"", ">micro", batch_text(c)},
                         {"", "<again", c.recompute ? "yes" : "-"},
                         {"", ">memory", as_bytes(mesh.memory_bytes())},
                         {"", ">between", as_bytes(mesh.slow_bytes)},
                         {"", ">iteration", as_seconds(mesh.seconds())}});
    row.set("reason", one.reason);
    for (Member& member : layout_members(mesh))
      row.set(member.key, member.value);
    row.set("proven", one.proven);
  }
  return rows;
}

void add_kinds(const ShownMeshes& shown, Document& out) {
  constexpr size_t kColumn = 20;
  out.title("The best of each kind").table("kinds", kinds_of(shown));
  out.note(
      "micro: micro-batches of a data-parallel rank x their tokens; again: "
      "layers are recomputed; between: bytes that a rank sends to other nodes");
  out.title("Why");
  for (const RankedMesh& one : shown.answer.kinds)
    out.labelled({"", std::string(to_string(one.kind)),
                  one.proven ? one.reason
                             : one.reason + "; one of this kind may be faster"},
                 kColumn);
}

// Rows as the table of kinds has them, with some figures each.
template <class AddFigures>
Listing figures_of(const ShownMeshes& shown, const AddFigures& add) {
  Listing rows;
  for (const RankedMesh& one : shown.answer.kinds)
    add(one.weighed, rows.add({{"", "<kind", to_string(one.kind)}}));
  return rows;
}

void add_times(const ShownMeshes& shown, Document& out) {
  const auto is_used = [&](const TimePart& part) {
    return std::ranges::any_of(shown.answer.kinds, [&](const RankedMesh& one) {
      return part.seconds(one.weighed.parts) > 0;
    });
  };
  out.title("Where the time goes; tp, ep, pp, dp: what compute waits for")
      .table(
          "", figures_of(shown, [&](const WeighedMesh& mesh, Row& row) {
            row.add({"", ">iteration", as_seconds(mesh.seconds())});
            for (const TimePart& part : kTimeParts)
              if (is_used(part))
                row.add(
                    {"", part.heading, as_seconds(part.seconds(mesh.parts))});
            row.add({"", cat(">of ", share_of(shown)), "",
                     percent(mesh.share_of_peak)});
            row.add({"", ">tokens/s", "", human_count(mesh.tokens_per_second)});
          }));
}

void add_memory(const ShownMeshes& shown, Document& out) {
  const int64_t cap = cap_of(shown);
  out.title(cat("Memory of the fullest rank",
                cap > 0 ? ", cap " + human_bytes(cap) : ""))
      .table("", figures_of(shown, [](const WeighedMesh& mesh, Row& row) {
               for (const MemoryPart& part : report::memory_of(mesh))
                 row.add({"", ">" + part.name, as_bytes(part.bytes)});
             }));
}

std::string kept_text(const MeshChange& change) {
  if (change.keeps()) return "the same";
  if (!change.best || !change.kept) return change.why_none;
  return "loses " + percent(std::max(0.0, change.kept_loses()));
}

void add_changes(const ShownMeshes& shown, Document& out) {
  if (shown.changes.empty()) return;
  Listing rows;
  for (const MeshChange& change : shown.changes) {
    const bool is_known = change.best && change.kept;
    Row& row = rows.add(
        {{"change", "<if", change.what},
         {"", "<the best is",
          change.best ? short_name(change.best->choice) : "-"},
         {"", ">micro", change.best ? batch_text(change.best->choice) : "-"},
         {"", ">iteration", "",
          change.best ? human_seconds(change.best->seconds()) : "-"},
         {"kept", "~today's", kept_text(change)}});
    row.set("best",
            change.best ? Value(layout_members(*change.best)) : Value(nullptr));
    row.set("kept_loses",
            is_known ? Value(std::max(0.0, change.kept_loses())) : nullptr);
  }
  out.title("If things are otherwise").table("changes", rows);
}

// "PyTorch", or "PyTorch, zero1 (0.2 % slower)" where it lacks the best.
std::string command_title(const ShownMeshes& shown, const MeshCommand& one) {
  if (one.line.empty() || one.layout == 0) return one.runs;
  const RankedMesh& other = shown.answer.kinds[one.layout];
  return fmt::format(
      "{}, {} ({} slower)", one.runs, to_string(other.kind),
      percent(other.weighed.seconds() / shown.answer.best().seconds() - 1));
}

void add_commands(const ShownMeshes& shown, Document& out) {
  if (shown.commands.empty()) return;
  out.title("To copy");
  Listing rows;
  for (const MeshCommand& one : shown.commands) {
    const std::string title = command_title(shown, one);
    Row& row = rows.add().set("runs", one.runs).set("title", title);
    row.set("command", one.line).set("why_not", one.why_not);
    row.set("layout", one.layout);
    const bool lacks_best = !one.why_not.empty();
    out.text(cat("  ", toned(Tone::kDim, title + ":"), "\n"));
    if (lacks_best) out.line("    not the best: " + printable(one.why_not), 6);
    // A command is one line, however long, so that it can be copied.
    if (!one.line.empty()) out.text(cat("    ", printable(one.line), "\n"));
  }
  out.set("commands", rows.value());
}

std::string verdict_of(const ShownMeshes& shown) {
  const WeighedMesh& best = shown.answer.best();
  return fmt::format("{}: {} an iteration (predicted), {}. {}.",
                     to_string(best.choice), human_seconds(best.seconds()),
                     memory_text(shown, best), found_text(shown.answer));
}

void add_members(const ShownMeshes& shown, Document& out) {
  out.set("choice", layout_members(shown.answer.best()));
  out.set("verdict", verdict_of(shown));
}

}  // namespace

std::vector<MemoryPart> memory_of(const WeighedMesh& mesh) {
  std::vector<MemoryPart> parts;
  for (const MemoryKind& kind : memory_kinds(true))
    parts.push_back({kind.name, (mesh.memory.*kind.field).value()});
  parts.push_back({"activations", mesh.activations});
  return parts;
}

Document mesh_view(const ShownMeshes& shown) {
  Document out;
  add_heading(shown, out);
  add_choice(shown, out);
  add_basis(shown, out);
  add_kinds(shown, out);
  add_changes(shown, out);
  add_commands(shown, out);
  add_members(shown, out);
  return out;
}

Document meshes_view(const ShownMeshes& shown) {
  Document out;
  add_heading(shown, out);
  add_basis(shown, out);
  add_kinds(shown, out);
  add_times(shown, out);
  add_memory(shown, out);
  add_members(shown, out);
  return out;
}

std::string mesh_html(const ShownMeshes& shown) {
  return make_page(to_json(mesh_view(shown), 0), {"bars.js", "mesh.js"});
}

}  // namespace canzona::report
