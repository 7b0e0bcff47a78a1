#include "wire/action_text.h"

namespace graphpipe::wire {

std::string action_text(const ActionRow& row) {
  std::string out = std::to_string(row.stage);
  const auto field = [&out](char letter, int64_t value) { out.append(1, letter).append(std::to_string(value)); };
  if (row.replica != 0) field('r', row.replica);
  out.append(action_name(row.op));
  field('[', row.range.first);
  field(',', row.range.last);
  out.append(1, ')');
  if (row.edge != -1) field('e', row.edge);
  if (row.peer_replica != -1) field('p', row.peer_replica);
  if (row.slot != -1) field('s', row.slot);
  if (row.version != 0) field('v', row.version);
  if (row.stream != stream_of(row.op)) field('c', static_cast<int>(row.stream));
  if (row.overlaps_next) out.append(1, 'o');
  return out;
}

}  // namespace graphpipe::wire
