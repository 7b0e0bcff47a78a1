#pragma once
// Whether data fit what a plan reads (data_table.h): asked by the launcher before the first process starts, and by
// ranks that were started by others. What is found is told all at once.

#include <functional>
#include <map>
#include <span>
#include <string>

#include "support/mapped_file.h"
#include "support/result.h"
#include "wire/data_table.h"

namespace graphpipe::wire {

/// An input's array, as its file has it.
struct DataArray {
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> dims;
  std::span<const std::byte> elements;
  /// The file's name, for messages.
  std::string file;
};

/// Whether the array has the entry's type and shape, with any positive number of samples. Errors: kBadData.
Status check_array(const DataEntry& entry, const DataArray& array);

/// Whether all ids of `samples` samples from `first` on lie in the entry's bounds. Errors (kBadData): the first that
/// does not, with its row and column, counted from 0 as NumPy does. Needs: check_array holds.
Status check_ids(const DataEntry& entry, const DataArray& array, int64_t first, int64_t samples);

/// "row 3, column 5 (from 0)" of an element; "row 3, element [1,2]" where a row has more axes; "the number" where the
/// array has none.
std::string place_of(const DataArray& array, size_t element);

/// The .npy files of a folder (data_file.h), each mapped when it is asked for first.
class NpyFolder {
 public:
  explicit NpyFolder(std::string folder) : folder_(std::move(folder)) {}
  /// Errors: kBadData where there is no such file, kUnreadableFile, kMalformedFile. The array lives as long as this.
  Result<DataArray> open(const DataEntry& entry);

 private:
  std::string folder_;
  std::map<std::string, MappedFile> files_;
};

/// Opens the array of an entry. What it returns must live as long as what it was taken from.
using OpenArray = std::function<Result<DataArray>(const DataEntry&)>;

/// All errors of all entries (kBadData, and those of `open`): arrays that do not fit, different numbers of samples, ids
/// out of bounds among the samples that `steps` steps read. At most kMaxProblems. Where there are none: a note if a
/// step begins at the end of the data and ends at their start.
Diagnostics check_data(const DataTable& table, const OpenArray& open, int64_t steps);

/// The table of a generated folder. Errors: kUnreadableFile, kMalformedFile.
Result<DataTable> read_data_table(const std::string& generated_folder);

/// check_data of a folder with one NAME.npy per input, for the table of a generated folder. Errors: also those of the
/// table, and kUnreadableFile where it is no folder. A folder of ONNX test data has no errors here: the programs read
/// it.
Diagnostics check_data_folder(const std::string& generated_folder, const std::string& folder, int64_t steps);

/// Whether the folder holds ONNX test data: input_0.pb, or test_data_set_0/input_0.pb.
bool is_test_data_folder(const std::string& folder);

}  // namespace graphpipe::wire
