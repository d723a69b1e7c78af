// `canzona models`: the presets, or what is in one model.
#include <memory>

#include "canzona/base/text.h"
#include "canzona/report/models_view.h"
#include "canzona/shapes/families.h"
#include "canzona/shapes/read_model.h"
#include "cli/options.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kModelsExamples =
    R"(Examples:
  canzona models
  canzona models qwen3-30b-a3b
  canzona models qwen3-8b --fused --split qkv
  canzona models ./model.safetensors.index.json --json
)";

struct ModelsFlags {
  std::string model;
  std::string split;
  bool fused = false;
  bool json = false;
};

Model read_routed(const std::string& source, bool fused) {
  Model model = read_model(source, {.fused = fused});
  route(model, {});
  return model;
}

std::vector<ModelLine> all_presets(bool fused) {
  std::vector<ModelLine> lines;
  for (const PresetInfo& preset : presets())
    lines.push_back(
        summarize(read_routed(preset.name, fused), preset.description));
  return lines;
}

std::string view(const ModelsFlags& a, const Ink& ink) {
  const Splits splits = a.split.empty() ? Splits{} : parse_splits(a.split);
  if (a.model.empty()) {
    const std::vector<ModelLine> lines = all_presets(a.fused);
    return a.json ? presets_json(lines, config_families())
                  : presets_text(lines, config_families(), ink);
  }
  const Model model = read_routed(a.model, a.fused);
  return a.json ? model_json(model, splits) : model_text(model, splits, ink);
}

}  // namespace

Verb add_models(CLI::App& root) {
  CLI::App* app =
      root.add_subcommand("models", "list the presets, or look into one model");
  auto arguments = std::make_shared<ModelsFlags>();
  app->add_option("MODEL", arguments->model,
                  "preset or file; without it all presets are listed");
  app->add_flag("--fused", arguments->fused,
                "qkv and gate+up are one tensor each");
  app->add_option("--split", arguments->split,
                  "tensors into matrices: none, qkv, head, gate-up, expert")
      ->option_text("HOW");
  offer_words(app->get_option("--split"),
              {"none", "qkv", "head", "gate-up", "expert"});
  app->add_flag("--json", arguments->json,
                "print one JSON object instead of text");
  app->footer(kModelsExamples);
  return {app, [arguments](const Output& out) {
            out.result(view(*arguments, out.ink()));
            return Outcome::kDone;
          }};
}

}  // namespace canzona::cli
