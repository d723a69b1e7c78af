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
  kPrepare,         // what the rule gathers of pieces, into a slot
  kTransform,       // of the matrices that this rank owns
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
};
inline constexpr int kNumPurposes = 9;

}  // namespace canzona
