#pragma once
// Orders that somebody wrote, in any form that a schedule is written in: PyTorch's CSV, lists of another project, our
// own text, JSON and binary forms.

#include <string>
#include <vector>

#include "files/schedule_csv.h"
#include "ir/schedule.h"
#include "ir/stage_graph.h"
#include "scheduler/standalone/infer_stages.h"
#include "support/result.h"

namespace graphpipe::driver {

/// Orders from a file, whichever form it has.
struct Orders {
  ir::Schedule schedule;
  scheduler::EdgeNumbers numbers = scheduler::EdgeNumbers::kFromActions;
  /// PyTorch's cells, where the file has them.
  files::CsvSchedule csv;
  std::vector<std::vector<int32_t>> cell_of;
};

/// Errors: kMalformedFile, those of the readers; a file without an action is one.
Result<Orders> read_orders(const std::string& path);

/// The order in which the devices of these stages compute; what else the file lists (messages, slots) is left to the
/// lowering. A cell of a CSV counts micro-batches of its stage, the other forms name samples. Errors (kBadSchedule): a
/// stage, micro-batch or device that the plan does not have; updates within the step.
Result<ir::Schedule> compute_order(const ir::StageGraph& graph, const Orders& orders);

}  // namespace graphpipe::driver
