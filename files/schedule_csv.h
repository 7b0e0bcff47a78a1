#pragma once
// Schedules as PyTorch's pipelining writes them: one line per rank, cells separated by commas, a cell such as "2F0",
// "0SEND_F3" or "(0F7;7B3)OVERLAP_F_B". Compute only, or with communication.
//
// A stage number is global; in a receive it is the receiving stage. Stages form a chain: stage s talks to s - 1 and
// s + 1 only. An empty cell is a deliberate idle step and says nothing about order: it is dropped, and keeps its place
// in the count of cells. "r<k>:" before a token names the replica of a stage that has several (DualPipe, Chimera).
// UNSHARD, RESHARD and REDUCE_GRAD are kept when a file is written again and mean nothing to a schedule.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "ir/schedule.h"

namespace graphpipe::files {

enum class CsvOp : uint8_t {
  kForward,
  kBackward,
  kInputGradient,
  kWeightGradient,
  kSendForward,
  kReceiveForward,
  kSendBackward,
  kReceiveBackward,
  kUnshard,
  kReshard,
  kReduceGradient,
};

/// The ops that schedules have too, by CsvOp.
inline constexpr std::array<ir::ActionOp, 8> kActionsOfCsv = {
    ir::ActionOp::kForward,        ir::ActionOp::kBackward,       ir::ActionOp::kInputGradient,
    ir::ActionOp::kWeightGradient, ir::ActionOp::kSendForward,    ir::ActionOp::kReceiveForward,
    ir::ActionOp::kSendBackward,   ir::ActionOp::kReceiveBackward};

struct CsvAction {
  CsvOp op = CsvOp::kForward;
  int32_t stage = 0;
  /// -1: written without a prefix, which means 0.
  int32_t replica = -1;
  /// -1: written without a number (UNSHARD, RESHARD, REDUCE_GRAD).
  int32_t micro_batch = -1;
  bool operator==(const CsvAction&) const = default;
};

/// One action, or two that overlap.
struct CsvCell {
  std::vector<CsvAction> actions;
  /// Counted from 0 with the idle cells.
  int32_t column = 0;
};

struct CsvSchedule {
  std::vector<std::vector<CsvCell>> ranks;
};

/// Errors: kMalformedFile with rank and cell of everything that is no token, at most 20 of them; kLimitExceeded.
Result<CsvSchedule> parse_schedule_csv(std::string_view text);
/// One line per rank, without idle cells but for ranks at the end that have nothing else. parse and print give the same
/// text but for idle cells.
std::string print_schedule_csv(const CsvSchedule& csv);
/// "2F0", "r1:2B4", "(0F7;7B3)OVERLAP_F_B".
std::string print_cell(const CsvCell& cell);
/// One action with the number of its first sample, as orders_of reads it: "2F0". Needs: an op that the format has.
std::string token_of(const ir::Action& action);

/// The same orders as a schedule whose micro-batches are single samples; rank r is device r, the edge between stages s
/// and s + 1 has number s. Nothing is checked.
struct CsvOrders {
  ir::Schedule schedule;
  /// Per program, per action: its cell among the cells of the rank.
  std::vector<std::vector<int32_t>> cell_of;
  bool has_messages = false;
};
CsvOrders orders_of(const CsvSchedule& csv);

enum class CsvLevel : uint8_t { kCompute, kCommunication };
/// The actions of a schedule as cells; micro-batch numbers count per stage in the order of samples. Messages between
/// stages of one device are left out, as are reductions and steps. Tokens get "r<k>:" where a stage has several
/// replicas. Errors (kUsage): what the format cannot say: communication of stages that are no chain; micro-batches that
/// are cut by replicas or by another size at the other end of a message; recomputation.
Result<CsvSchedule> csv_of(const ir::StageGraph& graph, const ir::Schedule& schedule, CsvLevel level);

/// Turns every I with its W right behind it into one B, as PyTorch does before it adds communication.
void merge_backwards(ir::Schedule& compute);

}  // namespace graphpipe::files
