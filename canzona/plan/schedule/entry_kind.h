// An entry of the schedule has a kind and a purpose.
#pragma once

namespace canzona {

enum class EntryKind {
  kCall,  // a point at which the trainer calls
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kPrepare,    // what the rule gathers of pieces, into a slot
  kTransform,  // of the matrices that this rank owns
  // Stages of a matrix that a team shares. One that a rank owns and whose
  // strips go one by one has the sum of each, the iteration, the product of
  // each.
  kLoadStrips,      // and their norm
  kScaleStrips,     // by the matrix's norm; once more if it is far from 1
  kSumStrips,       // their Gram matrix
  kRoundSum,        // a piece of the team's sum
  kIterate,         // at the head: a factor of the sum
  kMultiplyStrips,  // by the factor
  kApply,           // updates to pieces
  kUpdateElements,  // AdamW's
  kUpdateMatrices,  // of a home of one plane: no exchange
};

constexpr bool is_collective(EntryKind kind) {
  return kind >= EntryKind::kAllGather && kind <= EntryKind::kBroadcast;
}

// The purpose of a collective decides who issues it.
enum class Purpose {
  kNone,
  kGatherModule,   // parameters, before each use
  kScatterModule,  // gradients, after each micro-batch
  kSum,            // gradients of a bucket to those who keep them
  kSumReplicas,    // … and over groups that repeat each other
  kCheck,          // finite? how large?
  kGatherMatrices,
  kScatterMatrices,
  kPublish,  // new parameters
  // Between the members of a team (team_exchange.h).
  kTeamNorms,
  kTeamSums,
  kTeamTotals,
  kTeamFactors,
  kTeamPasses,
};
inline constexpr int kNumPurposes = 14;

constexpr bool is_of_team(Purpose purpose) {
  return purpose >= Purpose::kTeamNorms;
}
inline constexpr int kNumTeamPurposes =
    kNumPurposes - static_cast<int>(Purpose::kTeamNorms);

}  // namespace canzona
