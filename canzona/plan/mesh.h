// The mesh: ranks as a grid of dp × cp × tp × pp × ep.
//
//   Mesh mesh = parse_mesh("dp=32,tp=8");      // axes not named are 1
//   check_mesh(mesh, model);                   // says what does not divide
//
// A stage (pp coordinate) is planned by itself. Inside it, dense tensors are
// data-parallel over dp × cp × ep: a *home* is one of these coordinates.
// Experts are data-parallel over dp × cp, among the homes of their ep
// coordinate. Ranks count tp fastest, then homes (cp, ep, dp), then stages:
//
//   rank = (stage · homes + home) · tp + t,   home = (d · ep + e) · cp + c
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "canzona/plan/ranges.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

inline constexpr int64_t kMaxWorld = 1 << 20;

struct Mesh {
  int32_t dp = 1;
  int32_t cp = 1;
  int32_t tp = 1;
  int32_t pp = 1;
  int32_t ep = 1;
  // If every tensor-parallel shard is cut by rows once more, over `places`
  // ranks (zero.h), tp counts planes: places x tensor-parallel ranks. A rank
  // that keeps more slices than its own keeps neighbouring ones; `near` is that
  // of zero.h.
  int32_t places = 1;
  int32_t near = 1;

  int32_t tp_ranks() const { return tp / places; }
  int32_t plane(int32_t place, int32_t tp_rank) const {
    return place * tp_ranks() + tp_rank;
  }
  int32_t place_of(int32_t plane) const { return plane / tp_ranks(); }
  int32_t tp_rank_of(int32_t plane) const { return plane % tp_ranks(); }
  // The slice of a place.
  int32_t slice_of(int32_t place) const {
    return place % near * (places / near) + place / near;
  }

  int32_t homes() const { return dp * cp * ep; }  // for dense tensors
  int32_t expert_homes() const { return dp * cp; }
  int32_t ranks_per_stage() const { return homes() * tp; }
  int32_t world() const { return ranks_per_stage() * pp; }

  int32_t rank(int32_t stage, int32_t home, int32_t t) const {
    return (stage * homes() + home) * tp + t;
  }
  // Returns the home, among all homes of a stage, of expert home `x` at ep
  // coordinate `e`.
  int32_t home_of_expert(int32_t x, int32_t e) const {
    return (x / cp * ep + e) * cp + x % cp;
  }
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// Parses "dp=32,tp=8". The UsageError names the axis, the value and what is
// allowed.
Mesh parse_mesh(std::string_view text);
std::string to_string(const Mesh& mesh);

// Throws UsageError unless tp divides the query heads and every dimension it
// cuts, pp the layers and ep the experts. If tp exceeds the KV heads, k and v
// are cut inside heads.
void check_mesh(const Mesh& mesh, const Model& model);

// Return the stage, or the ep coordinate, that holds a tensor.
int32_t stage_of(const Mesh& mesh, const Model& model, const Tensor& tensor);
int32_t ep_of(const Mesh& mesh, const Model& model, const Tensor& tensor);

// Return the size of one tp rank's shard of a tensor, all slices together.
int64_t shard_rows(const Mesh& mesh, const Tensor& tensor);
int64_t shard_cols(const Mesh& mesh, const Tensor& tensor);
int64_t shard_elements(const Mesh& mesh, const Tensor& tensor);

// Return the part of a shard that belongs to a slice. Slices differ by at most
// one row.
Extent slice_rows(const Mesh& mesh, const Tensor& tensor, int32_t slice);
int64_t slice_elements(const Mesh& mesh, const Tensor& tensor, int32_t slice);

}  // namespace canzona
