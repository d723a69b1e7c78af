#include "canzona/saving/rank_outcome.h"

#include <algorithm>
#include <array>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/comm/from_all.h"

namespace canzona {
namespace {

// The form on the wire.
struct OutcomeRecord {
  static constexpr size_t kMostText = 1000;
  RankOutcome::Kind kind = RankOutcome::Kind::kDone;
  int32_t size = 0;
  std::array<char, kMostText> text = {};
};

}  // namespace

RankOutcome outcome_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const PeerLost&) {
    throw;
  } catch (const UsageError& error) {
    return {RankOutcome::Kind::kUsage, error.what()};
  } catch (const DataLost& error) {
    return {RankOutcome::Kind::kRefused, error.what()};
  } catch (const StorageError& error) {
    return {RankOutcome::Kind::kStorage, error.what()};
  } catch (const NumericalError& error) {
    return {RankOutcome::Kind::kNumerical, error.what()};
  } catch (const std::exception& error) {
    return {RankOutcome::Kind::kOther, error.what()};
  }
}

RankOutcome first_failure(Communicator& world, const RankOutcome& own,
                          const Call& call) {
  OutcomeRecord record{.kind = own.kind};
  const size_t size = std::min(own.text.size(), OutcomeRecord::kMostText);
  record.size = static_cast<int32_t>(size);
  std::copy_n(own.text.begin(), size, record.text.begin());
  for (const OutcomeRecord& other : one_from_all(world, record, call))
    if (other.kind != RankOutcome::Kind::kDone)
      return {other.kind,
              std::string(other.text.data(), static_cast<size_t>(other.size))};
  return {};
}

void throw_failure(const RankOutcome& outcome) {
  switch (outcome.kind) {
    case RankOutcome::Kind::kDone:
      return;
    case RankOutcome::Kind::kUsage:
      throw UsageError(outcome.text);
    case RankOutcome::Kind::kRefused:
      throw CheckpointRefused(outcome.text);
    case RankOutcome::Kind::kStorage:
      throw StorageError(outcome.text);
    case RankOutcome::Kind::kNumerical:
      throw NumericalError(outcome.text);
    case RankOutcome::Kind::kOther:
      throw Error(outcome.text);
  }
}

void at_first(Communicator& world, const std::function<void()>& body) {
  RankOutcome own;
  if (world.rank() == 0) own = outcome_of(body);
  require_all(world, own);
}

}  // namespace canzona
