#include "canzona/trace/tensorboard.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/test_folder.h"
#include "canzona/trace/test_tensorboard_reader.h"

namespace canzona::trace::tensorboard_test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class TensorBoard : public FolderTest {
 protected:
  // Two steps, the second with an evaluation.
  std::string sample() const {
    const std::string path = events_path(folder_.path(), 1000, "host");
    {
      TensorBoardWriter board(path, 1000.5);
      StepMetrics m;
      for (m.step = 1; m.step <= 2; ++m.step) {
        m.loss = 5.5 / static_cast<double>(m.step);
        if (m.step == 2) m.eval_loss = 2.875;
        board.add(m.step, 1000.5 + static_cast<double>(m.step), scalars_of(m));
      }
      // Read while it is still open, because a run can be watched.
      return read_file(path, 1 << 20, "events");
    }
  }
};

std::string message_of(const std::string& bytes) {
  try {
    read_events(bytes, "events");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST_F(TensorBoard, AnotherReaderFindsWhatWasWritten) {
  const auto events = read_events(sample(), "events");
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1000.5);
  EXPECT_TRUE(events[1].is_start);
  EXPECT_EQ(events[1].step, 0);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[2].wall_time, 1001.5);
  EXPECT_EQ(events[2].scalars.at("loss/train"), 5.5F);
  EXPECT_FALSE(events[2].is_start);
  EXPECT_FALSE(events[2].scalars.contains("loss/eval"));
  EXPECT_EQ(events[3].step, 2);
  EXPECT_EQ(events[3].scalars.at("loss/train"), 2.75F);
  EXPECT_EQ(events[3].scalars.at("loss/eval"), 2.875F);
  EXPECT_EQ(events[3].scalars.at("speed/hidden_fraction"), 1.0F);
}

// The first record, written by hand: length 24, its checksum, a double, the
// text, a checksum.
TEST_F(TensorBoard, TheFirstRecordIsAsTensorBoardWritesIt) {
  const std::string file = path("events");
  TensorBoardWriter board(file);
  const std::string event =
      std::string("\x09\0\0\0\0\0\0\0\0", 9) + "\x1A\x0D" + "brain.Event:2";
  const std::string bytes = read_file(file, 1 << 20, "events");
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  // The masked CRC-32C of those eight bytes, as every event file begins.
  EXPECT_EQ(bytes.substr(8, 4), "\xA3\x7F\x4B\x22");
  EXPECT_EQ(bytes.substr(12, 24), event);
  // The second one, of 15 bytes: time, step 0, a session log with START.
  EXPECT_EQ(bytes.size(), 40u + 12 + 15 + 4);
  EXPECT_EQ(bytes.substr(52 + 9, 6), std::string("\x10\0\x3A\2\x08\1", 6));
}

// A run that is resumed at step 8 after a kill in step 12.
TEST_F(TensorBoard, AResumedRunSupersedesItsLaterSteps) {
  const std::string first = next_events_path(folder_.path(), 1000, "node2");
  EXPECT_EQ(first, events_path(folder_.path(), 1000, "node2"));
  const TensorBoardWriter killed(first, 1000);
  // Another machine's clock is behind; names of others do not matter.
  for (const char* other : {"events.out.tfevents.mine", "events.out.tfevents.",
                            "events.out.tfevents.99999999999999999999.x",
                            "events.out.tfevents.99999999999.x", "metrics"})
    write_file(path(other), "");
  const std::string second = next_events_path(folder_.path(), 900, "node1");
  EXPECT_EQ(second, events_path(folder_.path(), 1001, "node1"));
  const TensorBoardWriter resumed(second, 900, 9);
  const auto events = read_events(read_file(second, 1 << 20, "e"), "e");
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_TRUE(events[1].is_start);
  EXPECT_EQ(events[1].step, 9);
}

TEST_F(TensorBoard, LargeStepsAndTagsComeBack) {
  const std::string file = path("events");
  const std::string tag(300, 't');
  TensorBoardWriter board(file);
  board.add(int64_t{1} << 40, 1.7e9, {{tag, 1e-30}, {"", -1}});
  const auto events = read_events(read_file(file, 1 << 20, "e"), "e");
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[2].step, int64_t{1} << 40);
  EXPECT_EQ(events[2].scalars.at(tag), 1e-30F);
  EXPECT_EQ(events[2].scalars.at(""), -1.0F);
}

TEST_F(TensorBoard, AnyChangedByteIsNoticed) {
  const std::string bytes = sample();
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    EXPECT_THAT(message_of(changed), HasSubstr("events")) << at;
  }
}

TEST_F(TensorBoard, AFileThatWasCutInsideARecordIsNoticed) {
  const std::string bytes = sample();
  int accepted = 0;
  for (size_t length = 0; length <= bytes.size(); ++length)
    if (message_of(bytes.substr(0, length)) == "nothing was refused")
      ++accepted;
  EXPECT_EQ(accepted, 5);  // before, and after each of four records
}

TEST_F(TensorBoard, NamesAFileThatCannotBeWritten) {
  EXPECT_THROW(TensorBoardWriter(path("no/events")), UsageError);
}

TEST_F(TensorBoard, HostsNameAFileAndNothingElse) {
  EXPECT_EQ(events_path("run", 12, "node-3.cluster"),
            "run/events.out.tfevents.12.node-3.cluster");
  EXPECT_EQ(events_path("run", 12, "../a b\n"),
            "run/events.out.tfevents.12..._a_b_");
  EXPECT_EQ(events_path("run", 12, ""), "run/events.out.tfevents.12.host");
}

}  // namespace
}  // namespace canzona::trace::tensorboard_test
