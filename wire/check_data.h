#pragma once
// Whether data fit what a plan reads (data_table.h): asked by the launcher before the first process starts, and by
// ranks that were started by others. What is found is told all at once.

#include <functional>
#include <string>
#include <vector>

#include "support/result.h"
#include "wire/data_folder.h"
#include "wire/data_table.h"
#include "wire/padding.h"
#include "wire/run/data.h"
#include "wire/sample_order.h"

namespace graphpipe::wire {

/// Whether the array has the entry's type and shape, with any positive number of samples; of an entry with a fill, none
/// of the other sizes need reach the entry's. Errors: kBadData.
Status check_array(const DataEntry& entry, const DataArray& array);

/// Whether all ids of `samples` samples from `first` on lie in the entry's bounds. Errors (kBadData): the first that
/// does not, with its row and column, counted from 0 as NumPy does. Needs: check_array holds.
Status check_ids(const DataEntry& entry, const DataArray& array, int64_t first, int64_t samples);

/// "row 3, column 5 (from 0)" of an element; "row 3, element [1,2]" where a row has more axes; "the number" where the
/// array has none.
std::string place_of(const DataArray& array, size_t element);

/// Opens the parts of an entry. What it returns must live as long as what it was taken from.
using OpenData = std::function<Result<std::vector<DataArray>>(const DataEntry&)>;

/// What a run reads of its data.
struct DataUse {
  int64_t steps = 1;
  /// In place of `steps`, where it is not 0.
  int64_t epochs = 0;
  OrderRule rule;
};

/// What the options of a run mean; `plan_seed` stands in where they have none.
DataUse data_use(const DataOptions& options, uint64_t plan_seed);
/// What an evaluation reads: every sample once, in order.
DataUse evaluation_use();

/// All errors of all entries (kBadData, and those of `open`): arrays that do not fit, different numbers of samples, ids
/// out of bounds among the samples that the steps read, a rule that cannot be followed. At most kMaxProblems. Where
/// there are none: a note if a step begins at the end of the data and ends at their start.
Diagnostics check_data(const DataTable& table, const OpenData& open, const DataUse& use);

/// The order in which steps of `batch` samples take those of the data; data without samples are one batch. Errors:
/// those of `open`; kBadData where drop leaves no step, kUsage where the plan cannot train the rest of an epoch alone.
Result<SampleOrder> sample_order(const DataTable& table, const OpenData& open, int64_t batch, const OrderRule& rule);
/// Those of the use, or of its epochs. Errors (kUsage): epochs of more than kMaxSteps.
Result<int64_t> steps_of(const SampleOrder& order, const DataUse& use);

/// The table of a generated folder with these paddings. Errors: kUnreadableFile, kMalformedFile, those of the paddings.
Result<DataTable> read_data_table(const std::string& generated_folder, const std::vector<Padding>& paddings = {});

/// check_data of a folder (data_folder.h) for the table of a generated folder. Errors: also those of the table, and
/// kUnreadableFile where it is no folder. A folder of ONNX test data has no errors here: the programs read it.
Diagnostics check_data_folder(const std::string& generated_folder, const std::string& folder, const DataUse& use,
                              const std::vector<Padding>& paddings = {});

/// Whether the folder holds ONNX test data: input_0.pb, or test_data_set_0/input_0.pb.
bool is_test_data_folder(const std::string& folder);

}  // namespace graphpipe::wire
