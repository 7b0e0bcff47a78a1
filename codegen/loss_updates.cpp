#include "codegen/loss_updates.h"

#include <algorithm>
#include <map>

namespace graphpipe::codegen {
namespace {

using Ranges = std::vector<wire::SampleRange>;

bool is_of(ir::StageId stage, int32_t number) {
  return stage.valid() && number >= 0 && static_cast<size_t>(number) == stage.index();
}

/// Joins neighbouring updates if some item has samples of both.
Ranges join_across(Ranges updates, const Ranges& items) {
  std::ranges::sort(updates, {}, &wire::SampleRange::first);
  Ranges joined;
  for (const wire::SampleRange& update : updates) {
    const bool goes_on = std::ranges::any_of(
        items, [&](const wire::SampleRange& item) { return item.first < update.first && update.first < item.last; });
    if (goes_on && !joined.empty()) joined.back().last = update.last;
    else joined.push_back(update);
  }
  return joined;
}

}  // namespace

Ranges loss_updates(ir::StageId loss_stage, const ir::Schedule& schedule) {
  std::map<int32_t, Ranges> updates;  // by stage
  Ranges items;                       // of the loss
  for (const ir::Program& program : schedule.programs)
    for (const wire::ActionRow& row : program.actions) {
      if (row.op == wire::ActionOp::kStep && row.replica == 0) updates[row.stage].push_back(row.range);
      if (row.op == wire::ActionOp::kForward && is_of(loss_stage, row.stage)) items.push_back(row.range);
    }
  Ranges chosen;
  for (const auto& [stage, ranges] : updates) {
    if (is_of(loss_stage, stage)) {
      chosen = ranges;
      break;
    }
    if (ranges.size() > chosen.size()) chosen = ranges;
  }
  chosen = join_across(std::move(chosen), items);
  return chosen.size() > 1 ? chosen : Ranges();
}

}  // namespace graphpipe::codegen
