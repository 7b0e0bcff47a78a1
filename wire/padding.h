#pragma once
// Data of smaller samples than the plan's: sentences of another length in every file, or in every batch. They are
// filled up at the end of each axis with a number of the user's choice, one that the model leaves out: a padding token,
// 0 of a mask, a label that does not count.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "support/diagnostic.h"
#include "support/result.h"
#include "wire/data_table.h"

namespace graphpipe::wire {

/// --pad NAME=NUMBER.
struct Padding {
  std::string name;
  double number = 0;
  bool operator==(const Padding&) const = default;
};

/// Adds one; false where the word is not of this form.
bool read_padding(const std::string& word, std::vector<Padding>& paddings);
/// NAME=NUMBER, the name encoded, as read_padding() takes it.
std::string write_padding(const Padding& padding);
/// The words, a line each.
std::string write_paddings(const std::vector<Padding>& paddings);

/// The table, its inputs with these fills. Errors (kUsage): an input that the plan does not read, a number that its
/// type lacks or that is no id of its bounds.
Result<DataTable> with_paddings(DataTable table, const std::vector<Padding>& paddings);

/// A dense array of dims `from` in the corner of one of dims `to`, the rest filled with `element`. Needs: as many dims
/// in both, none of `from` larger, and spans of these sizes.
void copy_padded(std::span<const std::byte> array, std::span<const int64_t> from, const std::string& element,
                 std::span<const int64_t> to, std::span<std::byte> padded);

}  // namespace graphpipe::wire
