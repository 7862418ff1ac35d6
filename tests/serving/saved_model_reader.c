// Runs a SavedModel through TensorFlow's C API: no Python in the process, and nothing of bert_tf
// but the shared objects that are named. So it shows what a program in another language gets.
//
//   saved_model_reader run MODEL SIGNATURE [LIBRARY...] < inputs
//     Loads the libraries of operations, then the model, and prints the signature's outputs.
//   saved_model_reader kernels LIBRARY... < names
//     Prints those of the operations that no kernel is registered for.
//
// A tensor is written, in and out, as words: name, rank, dimensions, values. Strings are in
// hexadecimal digits behind an "x", so that they may be empty; booleans are 0 and 1.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

enum { kMaxRank = 8, kMaxFields = 32, kNameSize = 256 };

static void Fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void Check(TF_Status* status, const char* what) {
  if (TF_GetCode(status) != TF_OK) Fail(what, TF_Message(status));
}

// --- protobuf's wire format, as far as a MetaGraphDef's signatures need it ---

typedef struct {
  const uint8_t* at;
  const uint8_t* end;
} Bytes;

static uint64_t Varint(Bytes* in) {
  uint64_t value = 0;
  for (int shift = 0; in->at < in->end && shift < 64; shift += 7) {
    const uint8_t byte = *in->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  Fail("protobuf", "a number that does not end");
  return 0;
}

// The next field: its number, or 0 at the end. `*body` is its bytes, or `*number` its value.
static int NextField(Bytes* in, Bytes* body, uint64_t* number) {
  if (in->at >= in->end) return 0;
  const uint64_t tag = Varint(in);
  uint64_t size = 0;
  switch (tag & 7) {
    case 0:
      *number = Varint(in);
      break;
    case 1:
      size = 8;
      break;
    case 2:
      size = Varint(in);
      break;
    case 5:
      size = 4;
      break;
    default:
      Fail("protobuf", "a wire type that no field of these messages has");
  }
  if (size > (uint64_t)(in->end - in->at)) Fail("protobuf", "a field beyond the end");
  body->at = in->at;
  body->end = in->at + size;
  in->at += size;
  return (int)(tag >> 3);
}

static void CopyName(char* name, Bytes bytes) {
  const size_t size = (size_t)(bytes.end - bytes.at);
  if (size >= kNameSize) Fail("name too long", "more than 255 bytes");
  memcpy(name, bytes.at, size);
  name[size] = 0;
}

typedef struct {
  char name[kNameSize];    // in the signature
  char tensor[kNameSize];  // in the graph: "operation:index"
  TF_DataType dtype;
} Field;

typedef struct {
  Field inputs[kMaxFields], outputs[kMaxFields];
  int num_inputs, num_outputs;
} Signature;

// An entry of `map<string, TensorInfo>`: key = 1, value = 2; TensorInfo: name = 1, dtype = 2.
static void ReadField(Bytes entry, Field* fields, int* count) {
  if (*count == kMaxFields) Fail("signature", "more than 32 inputs or outputs");
  Field* field = &fields[(*count)++];
  Bytes body, inner;
  uint64_t number = 0;
  for (int id; (id = NextField(&entry, &body, &number));) {
    if (id == 1) CopyName(field->name, body);
    if (id != 2) continue;
    for (int part; (part = NextField(&body, &inner, &number));) {
      if (part == 1) CopyName(field->tensor, inner);
      if (part == 2) field->dtype = (TF_DataType)number;
    }
  }
}

// MetaGraphDef: `map<string, SignatureDef> signature_def = 5`; SignatureDef: inputs = 1, outputs
// = 2.
static void ReadSignature(const TF_Buffer* meta_graph, const char* name, Signature* signature) {
  Bytes in = {meta_graph->data, (const uint8_t*)meta_graph->data + meta_graph->length};
  Bytes entry, body, inner;
  uint64_t number = 0;
  for (int id; (id = NextField(&in, &entry, &number));) {
    if (id != 5) continue;
    char key[kNameSize] = "";
    Bytes value = {0, 0};
    for (int part; (part = NextField(&entry, &body, &number));) {
      if (part == 1) CopyName(key, body);
      if (part == 2) value = body;
    }
    if (strcmp(key, name) != 0) continue;
    for (int part; (part = NextField(&value, &inner, &number));) {
      if (part == 1) ReadField(inner, signature->inputs, &signature->num_inputs);
      if (part == 2) ReadField(inner, signature->outputs, &signature->num_outputs);
    }
    return;
  }
  Fail(name, "the model has no such signature");
}

// --- tensors ---

static void ReadWord(char** word, size_t* capacity) {
  int c = getchar();
  while (c == ' ' || c == '\n') c = getchar();
  size_t size = 0;
  for (; c != EOF && c != ' ' && c != '\n'; c = getchar()) {
    if (size + 2 > *capacity) *word = realloc(*word, *capacity = 2 * *capacity + 64);
    (*word)[size++] = (char)c;
  }
  if (*word == NULL) *word = calloc(1, *capacity = 64);
  (*word)[size] = 0;
}

static char* word = NULL;
static size_t capacity = 0;

static long long ReadNumber(void) {
  ReadWord(&word, &capacity);
  return atoll(word);
}

static void ReadString(TF_TString* string) {
  ReadWord(&word, &capacity);
  const size_t size = (strlen(word) - 1) / 2;  // without the "x"
  char* bytes = malloc(size + 1);
  for (size_t i = 0; i < size; ++i) {
    unsigned byte;
    if (sscanf(word + 1 + 2 * i, "%2x", &byte) != 1) Fail(word, "no hexadecimal digits");
    bytes[i] = (char)byte;
  }
  TF_StringInit(string);
  TF_StringCopy(string, bytes, size);
  free(bytes);
}

static TF_Tensor* ReadTensor(TF_DataType dtype) {
  int64_t dims[kMaxRank], count = 1;
  const int rank = (int)ReadNumber();
  if (rank > kMaxRank) Fail("input", "more than 8 dimensions");
  for (int d = 0; d < rank; ++d) count *= dims[d] = ReadNumber();
  const size_t size = dtype == TF_STRING ? sizeof(TF_TString) : TF_DataTypeSize(dtype);
  TF_Tensor* tensor = TF_AllocateTensor(dtype, dims, rank, (size_t)count * size);
  void* data = TF_TensorData(tensor);
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == TF_STRING) {
      ReadString((TF_TString*)data + i);
    } else if (dtype == TF_INT32) {
      ((int32_t*)data)[i] = (int32_t)ReadNumber();
    } else if (dtype == TF_BOOL) {
      ((uint8_t*)data)[i] = ReadNumber() != 0;
    } else {
      Fail("input", "neither string, int32 nor bool");
    }
  }
  return tensor;
}

static void WriteTensor(const char* name, const TF_Tensor* tensor) {
  const int rank = TF_NumDims(tensor);
  printf("%s %d", name, rank);
  for (int d = 0; d < rank; ++d) printf(" %lld", (long long)TF_Dim(tensor, d));
  const void* data = TF_TensorData(tensor);
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i) {
    switch (TF_TensorType(tensor)) {
      case TF_FLOAT:
        printf(" %.9g", ((const float*)data)[i]);
        break;
      case TF_INT32:
        printf(" %d", ((const int32_t*)data)[i]);
        break;
      case TF_STRING: {
        const TF_TString* string = (const TF_TString*)data + i;
        const char* bytes = TF_StringGetDataPointer(string);
        printf(" x");
        for (size_t k = 0; k < TF_StringGetSize(string); ++k) printf("%02x", (uint8_t)bytes[k]);
        break;
      }
      default:
        Fail(name, "neither float, int32 nor string");
    }
  }
  printf("\n");
}

static TF_Output Find(TF_Graph* graph, const char* tensor) {
  char operation[kNameSize];
  snprintf(operation, sizeof(operation), "%s", tensor);
  char* colon = strrchr(operation, ':');
  if (colon == NULL) Fail(tensor, "not the name of a tensor");
  *colon = 0;
  TF_Output output = {TF_GraphOperationByName(graph, operation), atoi(colon + 1)};
  if (output.oper == NULL) Fail(tensor, "not in the graph");
  return output;
}

static void LoadLibraries(int count, char** paths, TF_Status* status) {
  for (int i = 0; i < count; ++i) {
    TF_LoadLibrary(paths[i], status);
    Check(status, paths[i]);
  }
}

static void Run(const char* model, const char* name, TF_Status* status) {
  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  TF_Buffer* meta_graph = TF_NewBuffer();
  const char* tags[] = {"serve"};
  TF_Session* session =
      TF_LoadSessionFromSavedModel(options, NULL, model, tags, 1, graph, meta_graph, status);
  Check(status, model);
  static Signature signature;
  ReadSignature(meta_graph, name, &signature);

  TF_Output inputs[kMaxFields], outputs[kMaxFields];
  TF_Tensor *given[kMaxFields], *results[kMaxFields];
  for (int i = 0; i < signature.num_inputs; ++i) {
    ReadWord(&word, &capacity);
    const Field* field = NULL;
    for (int k = 0; k < signature.num_inputs; ++k) {
      if (strcmp(signature.inputs[k].name, word) == 0) field = &signature.inputs[k];
    }
    if (field == NULL) Fail(word, "the signature has no such input");
    inputs[i] = Find(graph, field->tensor);
    given[i] = ReadTensor(field->dtype);
  }
  for (int i = 0; i < signature.num_outputs; ++i) {
    outputs[i] = Find(graph, signature.outputs[i].tensor);
  }
  TF_SessionRun(session, NULL, inputs, given, signature.num_inputs, outputs, results,
                signature.num_outputs, NULL, 0, NULL, status);
  Check(status, name);
  for (int i = 0; i < signature.num_outputs; ++i) {
    WriteTensor(signature.outputs[i].name, results[i]);
    TF_DeleteTensor(results[i]);
  }
  for (int i = 0; i < signature.num_inputs; ++i) TF_DeleteTensor(given[i]);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteBuffer(meta_graph);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
}

static void ListMissingKernels(TF_Status* status) {
  for (ReadWord(&word, &capacity); word[0] != 0; ReadWord(&word, &capacity)) {
    TF_Buffer* kernels = TF_GetRegisteredKernelsForOp(word, status);
    Check(status, word);
    if (kernels->length == 0) printf("%s\n", word);
    TF_DeleteBuffer(kernels);
  }
}

int main(int argc, char** argv) {
  TF_Status* status = TF_NewStatus();
  if (argc >= 4 && strcmp(argv[1], "run") == 0) {
    LoadLibraries(argc - 4, argv + 4, status);
    Run(argv[2], argv[3], status);
  } else if (argc >= 2 && strcmp(argv[1], "kernels") == 0) {
    LoadLibraries(argc - 2, argv + 2, status);
    ListMissingKernels(status);
  } else {
    Fail(argv[0], "expected `run MODEL SIGNATURE [LIBRARY...]` or `kernels LIBRARY...`");
  }
  TF_DeleteStatus(status);
  free(word);
  return 0;
}
