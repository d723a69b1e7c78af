#include "canzona/plan/mesh.h"

#include <array>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"

namespace canzona {
namespace {

struct Axis {
  const char* name;
  int32_t Mesh::*member;
};
constexpr std::array<Axis, 5> kAxes{{{"dp", &Mesh::dp},
                                     {"cp", &Mesh::cp},
                                     {"tp", &Mesh::tp},
                                     {"pp", &Mesh::pp},
                                     {"ep", &Mesh::ep}}};

std::vector<std::string> axis_names() {
  std::vector<std::string> names;
  names.reserve(kAxes.size());
  for (const Axis& axis : kAxes) names.emplace_back(axis.name);
  return names;
}

Axis find_axis(const std::string& name) {
  for (const Axis& axis : kAxes) {
    if (name == axis.name) return axis;
  }
  throw UsageError(cat("mesh: unknown axis ", quoted(name), ", expected ",
                       join(axis_names(), ", "),
                       did_you_mean(name, axis_names())));
}

void check_world(const Mesh& mesh, std::string_view text) {
  int64_t world = 1;
  for (const Axis& axis : kAxes) {
    world = checked_mul(world, mesh.*axis.member, "ranks");
    if (world > kMaxWorld) {
      throw UsageError(
          cat("mesh ", quoted(text), ": more than ", kMaxWorld, " ranks"));
    }
  }
}

[[noreturn]] void does_not_divide(const char* axis, int64_t value, int64_t size,
                                  const std::string& what) {
  throw UsageError(cat("mesh: ", axis, "=", value, " does not divide the ",
                       size, " ", what));
}

void check_heads(const Mesh& mesh, const Model& model) {
  if (model.query_heads == 0) return;
  if (model.query_heads % mesh.tp != 0) {
    does_not_divide("tp", mesh.tp, model.query_heads, "query heads");
  }
  const int64_t kv = model.kv_heads;
  // With more tp ranks than KV heads, their rows are cut; check_cut ensures
  // that they divide.
  const bool inside_heads = mesh.tp > kv;
  if (kv > 0 && kv % mesh.tp != 0 && !inside_heads) {
    does_not_divide("tp", mesh.tp, kv, "key/value heads");
  }
}

void check_cut(const Mesh& mesh, const Tensor& tensor) {
  if (tensor.cut == Cut::kColumns && tensor.cols() % mesh.tp != 0) {
    does_not_divide("tp", mesh.tp, tensor.cols(),
                    cat("columns of ", quoted(tensor.name)));
  }
  if (tensor.cut != Cut::kRows) return;
  if (tensor.rows() % mesh.tp != 0) {
    does_not_divide("tp", mesh.tp, tensor.rows(),
                    cat("rows of ", quoted(tensor.name)));
  }
  for (const Section& section : tensor.sections) {
    if (section.rows.rows() % mesh.tp != 0) {
      does_not_divide(
          "tp", mesh.tp, section.rows.rows(),
          cat("rows of section ", section.name, " of ", quoted(tensor.name)));
    }
  }
}

}  // namespace

Mesh parse_mesh(std::string_view text) {
  Mesh mesh;
  std::vector<std::string> seen;
  for (const std::string& word : split_text(text, ',')) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      throw UsageError(cat("mesh ", quoted(text),
                           ": expected axis=size such as "
                           "dp=32,tp=8, got ",
                           quoted(word)));
    }
    const Axis axis = find_axis(word.substr(0, equals));
    for (const std::string& name : seen) {
      if (name == axis.name) {
        throw UsageError(cat("mesh ", quoted(text), ": axis ", name, " twice"));
      }
    }
    seen.emplace_back(axis.name);
    mesh.*axis.member = static_cast<int32_t>(
        parse_integer(std::string_view(word).substr(equals + 1), 1, kMaxWorld,
                      cat("mesh axis ", axis.name)));
  }
  check_world(mesh, text);
  return mesh;
}

std::string to_string(const Mesh& mesh) {
  std::string out;
  for (const Axis& axis : kAxes) {
    if (mesh.*axis.member == 1) continue;
    if (!out.empty()) out += ',';
    out += cat(axis.name, "=", mesh.*axis.member);
  }
  return out.empty() ? "dp=1" : out;
}

void check_mesh(const Mesh& mesh, const Model& model) {
  check_heads(mesh, model);
  if (mesh.pp > 1 &&
      (model.num_layers == 0 || model.num_layers % mesh.pp != 0)) {
    does_not_divide("pp", mesh.pp, model.num_layers, "layers");
  }
  if (mesh.ep > 1 && model.num_experts == 0) {
    throw UsageError(cat("mesh: ep=", mesh.ep, ": the model has no experts"));
  }
  if (mesh.ep > 1 && model.num_experts % mesh.ep != 0) {
    does_not_divide("ep", mesh.ep, model.num_experts, "experts");
  }
  if (mesh.tp == 1) return;
  for (const Tensor& tensor : model.tensors) check_cut(mesh, tensor);
}

int32_t stage_of(const Mesh& mesh, const Model& model, const Tensor& tensor) {
  if (mesh.pp == 1) return 0;
  if (tensor.layer >= 0) {
    return tensor.layer / (model.num_layers / mesh.pp);
  }
  return tensor.role == Role::kEmbedding ? 0 : mesh.pp - 1;
}

int32_t ep_of(const Mesh& mesh, const Model& model, const Tensor& tensor) {
  if (mesh.ep == 1 || tensor.expert < 0) return -1;
  return tensor.expert / (model.num_experts / mesh.ep);
}

int64_t shard_rows(const Mesh& mesh, const Tensor& tensor) {
  return tensor.cut == Cut::kRows ? tensor.rows() / mesh.tp_ranks()
                                  : tensor.rows();
}

int64_t shard_cols(const Mesh& mesh, const Tensor& tensor) {
  return tensor.cut == Cut::kColumns ? tensor.cols() / mesh.tp_ranks()
                                     : tensor.cols();
}

int64_t shard_elements(const Mesh& mesh, const Tensor& tensor) {
  return shard_rows(mesh, tensor) * shard_cols(mesh, tensor);
}

Extent slice_rows(const Mesh& mesh, const Tensor& tensor, int32_t slice) {
  const int64_t rows = shard_rows(mesh, tensor);
  const int64_t first = rows * slice / mesh.places;
  return {first, rows * (slice + 1) / mesh.places - first};
}

int64_t slice_elements(const Mesh& mesh, const Tensor& tensor, int32_t slice) {
  return slice_rows(mesh, tensor, slice).count * shard_cols(mesh, tensor);
}

}  // namespace canzona
