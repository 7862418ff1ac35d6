// Compiles the GPU kernels with NVRTC and launches them through CUDA's driver. Both libraries are
// found when a kernel is first launched, so that the same object serves machines without a GPU: the
// driver brings libcuda, and `pip install 'bert_tf[gpu]'`, or a CUDA toolkit, libnvrtc.
//
// The machine code of a kernel is stored in $BERT_TF_CACHE_DIR/gpu_kernels, by default in
// ~/.cache/bert_tf. The name of a file has a hash of everything on which the code depends.
#include "custom_ops/kernels/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "custom_ops/kernels/cuda/cuda_launchers.h"

// The versions of glibc 2.28 and older, so that the object loads there.
#if defined(__x86_64__)
#define BERT_TF_OLDEST_GLIBC "GLIBC_2.2.5"
#else
#define BERT_TF_OLDEST_GLIBC "GLIBC_2.17"
#endif
__asm__(".symver dlopen, dlopen@" BERT_TF_OLDEST_GLIBC);
__asm__(".symver dlsym, dlsym@" BERT_TF_OLDEST_GLIBC);

namespace bert_tf::cuda {
namespace {

constexpr int kLeastCapability = 80;  // sm_80
constexpr int kNotCompiled = -1;      // the status of errors that are not those of the driver

struct SourceFile {
  const char* name;
  const char* text;
};
// The .cu.cc files and their headers (BUILD).
constexpr SourceFile kSources[] = {
#include "custom_ops/kernels/cuda/cuda_sources.inc"
};
constexpr char kStandardHeader[] = "#include \"custom_ops/kernels/cuda/cuda_std.h\"\n";
constexpr const char* kStandardHeaders[] = {"cfloat",   "cmath",   "cstddef",
                                            "cstdint",  "cstring", "functional",
                                            "stdint.h", "string",  "type_traits"};
constexpr const char* kOptions[] = {"--std=c++17", "--device-as-default-execution-space",
                                    "--disable-warnings"};

// FNV-1a. It detects damaged files and old ones; it is no protection against an attacker.
uint64_t Hash(const std::string& bytes, uint64_t hash = 0xCBF29CE484222325) {
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  return hash;
}

std::string Hexadecimal(uint64_t value) {
  char digits[17];
  snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

std::string FirstLineWith(const std::string& text, const char* word) {
  const size_t found = text.find(word);
  if (found == std::string::npos) return text.substr(0, text.find('\n'));
  const size_t begin = text.rfind('\n', found) + 1;
  return text.substr(begin, text.find('\n', found) - begin);
}

// A library that is opened when it is needed; `error` says why it could not be.
struct Library {
  void* handle = nullptr;
  std::string error;

  Library(std::initializer_list<const char*> names, const char* way_out) {
    for (const char* name : names) {
      if (handle == nullptr) handle = dlopen(name, RTLD_NOW);
    }
    if (handle == nullptr) error = std::string(*names.begin()) + " was not found: " + way_out;
  }

  template <typename Function>
  void Find(const char* name, Function** function) {
    if (handle == nullptr) return;
    *function = reinterpret_cast<Function*>(dlsym(handle, name));
    if (*function == nullptr && error.empty()) error = std::string("a library lacks ") + name;
  }
};

struct Nvrtc : Library {
  int (*Version)(int*, int*);
  int (*GetNumSupportedArchs)(int*);
  int (*GetSupportedArchs)(int*);
  int (*CreateProgram)(void**, const char*, const char*, int, const char* const*,
                       const char* const*);
  int (*DestroyProgram)(void**);
  int (*AddNameExpression)(void*, const char*);
  int (*CompileProgram)(void*, int, const char* const*);
  int (*GetLoweredName)(void*, const char*, const char**);
  int (*GetCUBINSize)(void*, size_t*);
  int (*GetCUBIN)(void*, char*);
  int (*GetPTXSize)(void*, size_t*);
  int (*GetPTX)(void*, char*);
  int (*GetProgramLogSize)(void*, size_t*);
  int (*GetProgramLog)(void*, char*);

  int version = 0;  // 12090 for 12.9
  std::vector<int> architectures;

  Nvrtc()
      : Library({"libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"},
                "pip install 'bert_tf[gpu]' installs it") {
#define BERT_TF_FIND(name) Find("nvrtc" #name, &name)
    BERT_TF_FIND(Version);
    BERT_TF_FIND(GetNumSupportedArchs);
    BERT_TF_FIND(GetSupportedArchs);
    BERT_TF_FIND(CreateProgram);
    BERT_TF_FIND(DestroyProgram);
    BERT_TF_FIND(AddNameExpression);
    BERT_TF_FIND(CompileProgram);
    BERT_TF_FIND(GetLoweredName);
    BERT_TF_FIND(GetCUBINSize);
    BERT_TF_FIND(GetCUBIN);
    BERT_TF_FIND(GetPTXSize);
    BERT_TF_FIND(GetPTX);
    BERT_TF_FIND(GetProgramLogSize);
    BERT_TF_FIND(GetProgramLog);
#undef BERT_TF_FIND
    if (!error.empty()) return;
    int major = 0, minor = 0, count = 0;
    Version(&major, &minor);
    version = major * 1000 + minor * 10;
    GetNumSupportedArchs(&count);
    architectures.resize(count);
    GetSupportedArchs(architectures.data());
  }
};

Nvrtc& TheNvrtc() {
  static Nvrtc nvrtc;
  return nvrtc;
}

// https://docs.nvidia.com/cuda/cuda-driver-api
struct Driver : Library {
  int (*Init)(unsigned);
  int (*DriverGetVersion)(int*);
  int (*CtxGetCurrent)(void**);
  int (*CtxGetDevice)(int*);
  int (*DeviceGetAttribute)(int*, int, int);
  int (*ThreadExchangeStreamCaptureMode)(int*);
  int (*ModuleLoadData)(void**, const void*);
  int (*ModuleGetFunction)(void**, void*, const char*);
  int (*FuncSetAttribute)(void*, int, int);
  int (*LaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void*, void**, void**);
  int (*GetErrorName)(int, const char**);

  int version = 0;  // the CUDA that it supports: 12090 for 12.9

  Driver() : Library({"libcuda.so.1"}, "install NVIDIA's driver") {
#define BERT_TF_FIND(name) Find("cu" #name, &name)
    BERT_TF_FIND(Init);
    BERT_TF_FIND(DriverGetVersion);
    BERT_TF_FIND(CtxGetCurrent);
    BERT_TF_FIND(CtxGetDevice);
    BERT_TF_FIND(DeviceGetAttribute);
    BERT_TF_FIND(ThreadExchangeStreamCaptureMode);
    BERT_TF_FIND(ModuleLoadData);
    BERT_TF_FIND(ModuleGetFunction);
    BERT_TF_FIND(FuncSetAttribute);
    BERT_TF_FIND(LaunchKernel);
    BERT_TF_FIND(GetErrorName);
#undef BERT_TF_FIND
    if (!error.empty()) return;
    const int status = Init(0);
    if (status != 0) {
      error = "the driver does not start: " + ErrorName(status);
      return;
    }
    DriverGetVersion(&version);
  }

  std::string ErrorName(int status) const {
    const char* name = nullptr;
    if (GetErrorName(status, &name) != 0 || name == nullptr) name = "an unknown error";
    return std::string(name) + " (" + std::to_string(status) + ")";
  }
};

Driver& TheDriver() {
  static Driver driver;
  return driver;
}

// The machine code of a kernel, with the mangled name that it has there.
struct Image {
  std::string name;
  std::string code;
};

// Compiles `expression`, a kernel of `source`. Returns an error, or "".
std::string Compile(const std::string& source, const std::string& expression,
                    const std::string& architecture, bool is_cubin, Image* image) {
  Nvrtc& nvrtc = TheNvrtc();
  std::vector<const char*> names, texts;
  std::string main;
  for (const SourceFile& file : kSources) {
    names.push_back(file.name);
    texts.push_back(file.text);
    if (file.name == source) main = file.text;
  }
  for (const char* name : kStandardHeaders) {
    names.push_back(name);
    texts.push_back(kStandardHeader);
  }
  main += "\nusing namespace bert_tf;\nusing namespace bert_tf::cuda;\n";
  const std::string target = "--gpu-architecture=" + architecture;
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(target.c_str());
  void* program = nullptr;
  if (nvrtc.CreateProgram(&program, main.c_str(), source.c_str(), static_cast<int>(names.size()),
                          texts.data(), names.data()) != 0) {
    return "NVRTC makes no program";
  }
  std::string error;
  const char* lowered = nullptr;
  const bool is_compiled =
      nvrtc.AddNameExpression(program, expression.c_str()) == 0 &&
      nvrtc.CompileProgram(program, static_cast<int>(options.size()), options.data()) == 0 &&
      nvrtc.GetLoweredName(program, expression.c_str(), &lowered) == 0;
  size_t size = 0;
  if (is_compiled) {
    image->name = lowered;
    (is_cubin ? nvrtc.GetCUBINSize : nvrtc.GetPTXSize)(program, &size);
    image->code.resize(size);
    (is_cubin ? nvrtc.GetCUBIN : nvrtc.GetPTX)(program, &image->code[0]);
  } else {
    nvrtc.GetProgramLogSize(program, &size);
    std::string log(size, '\0');
    nvrtc.GetProgramLog(program, &log[0]);
    error = "NVRTC " + std::to_string(nvrtc.version / 1000) + "." +
            std::to_string(nvrtc.version % 1000 / 10) + " does not compile " + expression +
            " for " + architecture + ": " + FirstLineWith(log, "error");
  }
  nvrtc.DestroyProgram(&program);
  return error;
}

// The folder of the compiled kernels, which is made if it is missing, or "".
std::string CacheFolder() {
  const auto variable = [](const char* name) {
    const char* value = getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  std::string folder = variable("BERT_TF_CACHE_DIR");
  if (folder.empty() && !variable("XDG_CACHE_HOME").empty()) {
    folder = variable("XDG_CACHE_HOME") + "/bert_tf";
  }
  if (folder.empty() && !variable("HOME").empty()) folder = variable("HOME") + "/.cache/bert_tf";
  if (folder.empty()) return "";
  folder += "/gpu_kernels";
  for (size_t end = folder.find('/', 1); end != std::string::npos;
       end = folder.find('/', end + 1)) {
    mkdir(folder.substr(0, end).c_str(), 0700);
  }
  mkdir(folder.c_str(), 0700);
  return folder;
}

// A file has a hash of the rest in hexadecimal digits, the name and the code, each after a newline.
bool ReadImage(const std::string& path, Image* image) {
  FILE* const file = fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  std::string text;
  char part[1 << 16];
  for (size_t count; (count = fread(part, 1, sizeof(part), file)) > 0;) text.append(part, count);
  fclose(file);
  const size_t first = text.find('\n'), second = text.find('\n', first + 1);
  if (first == std::string::npos || second == std::string::npos) return false;
  if (text.substr(0, first) != Hexadecimal(Hash(text.substr(first + 1)))) return false;
  image->name = text.substr(first + 1, second - first - 1);
  image->code = text.substr(second + 1);
  return true;
}

// Writes the file atomically. Returns whether it could.
bool WriteImage(const std::string& path, const Image& image) {
  const std::string rest = image.name + "\n" + image.code;
  const std::string text = Hexadecimal(Hash(rest)) + "\n" + rest;
  std::string unfinished = path + ".XXXXXX";
  const int file = mkstemp(&unfinished[0]);
  if (file < 0) return false;
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = write(file, text.data() + written, text.size() - written);
    if (count <= 0) break;
    written += count;
  }
  const bool is_whole = written == text.size();
  if (close(file) == 0 && is_whole && rename(unfinished.c_str(), path.c_str()) == 0) return true;
  const int reason = errno;
  unlink(unfinished.c_str());
  errno = reason;
  return false;
}

// Prints a line in the first call of a process for each number.
template <int kNumber>
void SayOnce(const std::string& line) {
  [[maybe_unused]] static const int printed = fprintf(stderr, "bert_tf: %s.\n", line.c_str());
}

// Gets the code of a kernel for a compute capability, such as 90, from the cache or from NVRTC.
// Returns an error, or "".
std::string GetImage(const std::string& source, const std::string& expression, int capability,
                     Image* image) {
  Nvrtc& nvrtc = TheNvrtc();
  if (!nvrtc.error.empty()) return nvrtc.error;
  int architecture = 0;
  for (const int known : nvrtc.architectures) {
    if (known <= capability) architecture = std::max(architecture, known);
  }
  // A GPU that is newer than NVRTC gets PTX, which the driver compiles.
  const bool is_cubin = architecture == capability;
  const std::string target = (is_cubin ? "sm_" : "compute_") + std::to_string(architecture);
  static const uint64_t sources = [] {
    uint64_t hash = Hash("");
    for (const SourceFile& file : kSources) hash = Hash(file.text, Hash(file.name, hash));
    for (const char* option : kOptions) hash = Hash(option, hash);
    return hash;
  }();
  const std::string key = source + "\n" + expression + "\n" + std::to_string(nvrtc.version);
  const std::string folder = CacheFolder();
  const std::string path =
      folder + "/" + target + "_" + Hexadecimal(Hash(key + "\n" + target, sources));
  if (!folder.empty() && ReadImage(path, image)) return "";
  SayOnce<0>("NVRTC compiles GPU kernels at their first use, for the cache in " + folder);
  const std::string error = Compile(source, expression, target, is_cubin, image);
  if (error.empty() && (folder.empty() || !WriteImage(path, *image))) {
    const char* const why = folder.empty() ? "HOME is not set" : strerror(errno);
    SayOnce<1>("every process compiles GPU kernels again, because they cannot be stored in '" +
               folder + "': " + why + ". BERT_TF_CACHE_DIR can name another folder");
  }
  return error;
}

std::vector<Kernel*>& AllKernels() {
  static std::vector<Kernel*> kernels;
  return kernels;
}

// "…[with auto kKernel = a::{anonymous}::Kernel<b::T, 64>; Parameters = …]" becomes "Kernel<b::T,
// 64>".
std::string NameIn(const std::string& signature) {
  const size_t begin = signature.find("kKernel = ") + strlen("kKernel = ");
  size_t end = begin;
  for (int open = 0; open > 0 || strchr(";,]", signature[end]) == nullptr; ++end) {
    open += (signature[end] == '<') - (signature[end] == '>');
  }
  std::string name = signature.substr(begin, end - begin);
  for (const char* word :
       {"{anonymous}::", "(anonymous namespace)::", "bert_tf::", "cuda::", "&"}) {
    for (size_t at; (at = name.find(word)) != std::string::npos;) name.erase(at, strlen(word));
  }
  return name;
}

}  // namespace

Kernel::Kernel(const char* source, const char* signature, std::vector<size_t> parameter_bytes)
    : source_(source), name_(NameIn(signature)), parameter_bytes_(std::move(parameter_bytes)) {
  AllKernels().push_back(this);
}

int Kernel::Load(void* context) {
  Driver& driver = TheDriver();
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  int device = 0, major = 0, minor = 0;
  int status = driver.CtxGetDevice(&device);
  if (status == 0) status = driver.DeviceGetAttribute(&major, kMajor, device);
  if (status == 0) status = driver.DeviceGetAttribute(&minor, kMinor, device);
  if (status != 0) return Fail(status, "the GPU is not known: " + driver.ErrorName(status));
  const int capability = 10 * major + minor;
  if (capability < kLeastCapability) {
    return Fail(kNotCompiled, "the GPU has compute capability " + std::to_string(major) + "." +
                                  std::to_string(minor) + ", but the kernels need at least 8.0");
  }
  const Nvrtc& nvrtc = TheNvrtc();
  if (nvrtc.error.empty() && driver.version / 1000 < nvrtc.version / 1000) {
    return Fail(kNotCompiled, "the driver supports CUDA " + std::to_string(driver.version / 1000) +
                                  ", but the kernels are compiled with NVRTC " +
                                  std::to_string(nvrtc.version / 1000) + ": update the driver");
  }
  Image image;
  const std::string error = GetImage(source_, name_, capability, &image);
  if (!error.empty()) return Fail(kNotCompiled, error);
  void *module = nullptr, *function = nullptr;
  // XLA may record the launch in a CUDA graph; loading is not a part of it.
  int mode = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
  driver.ThreadExchangeStreamCaptureMode(&mode);
  status = driver.ModuleLoadData(&module, image.code.c_str());
  if (status == 0) status = driver.ModuleGetFunction(&function, module, image.name.c_str());
  driver.ThreadExchangeStreamCaptureMode(&mode);
  if (status != 0) return Fail(status, name_ + " does not load: " + driver.ErrorName(status));
  constexpr size_t kUnasked = 48 * 1024;  // more dynamic shared memory must be requested
  loaded_.push_back({context, function, kUnasked});
  return 0;
}

int Kernel::Launch(dim3 grid, int threads, size_t shared_bytes, void* stream, void** parameters) {
  Driver& driver = TheDriver();
  if (!driver.error.empty()) return Fail(kNotCompiled, driver.error);
  void* context = nullptr;
  int status = driver.CtxGetCurrent(&context);
  if (status != 0 || context == nullptr) {
    return Fail(status != 0 ? status : kNotCompiled, "no GPU is current in this thread");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_here = [&](const Loaded& loaded) { return loaded.context == context; };
  auto loaded = std::find_if(loaded_.begin(), loaded_.end(), is_here);
  if (loaded == loaded_.end()) {
    status = Load(context);
    if (status != 0) return status;
    loaded = loaded_.end() - 1;
  }
  if (shared_bytes > loaded->shared_bytes) {
    constexpr int kMaxDynamicSharedSize = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    status = driver.FuncSetAttribute(loaded->function, kMaxDynamicSharedSize,
                                     static_cast<int>(shared_bytes));
    if (status == 0) loaded->shared_bytes = shared_bytes;
  }
  if (status == 0) {
    status = driver.LaunchKernel(loaded->function, grid.x, grid.y, 1, threads, 1, 1,
                                 static_cast<unsigned>(shared_bytes), stream, parameters, nullptr);
  }
  return status == 0 ? 0 : Fail(status, name_ + ": " + driver.ErrorName(status));
}

}  // namespace bert_tf::cuda

// For tools and tests, on machines with or without a GPU.
extern "C" {

// Describes a kernel in lines: its source, its name, and the size of each parameter. Returns null
// after the last kernel.
const char* BertTfCudaKernel(int index) {
  using namespace bert_tf::cuda;
  if (index >= static_cast<int>(AllKernels().size())) return nullptr;
  const Kernel& kernel = *AllKernels()[index];
  static thread_local std::string text;
  text = std::string(kernel.source()) + "\n" + kernel.name();
  for (const size_t bytes : kernel.parameter_bytes()) text += "\n" + std::to_string(bytes);
  return text.c_str();
}

// Compiles a kernel for a compute capability, such as 90, or gets it from the cache. The code is
// valid until the next call in this thread. Returns 0 or an error.
int BertTfCudaCompile(int index, int capability, const char** code, int64_t* size) {
  using namespace bert_tf::cuda;
  const Kernel& kernel = *AllKernels()[index];
  static thread_local Image image;
  const std::string error = GetImage(kernel.source(), kernel.name(), capability, &image);
  *code = image.code.data();
  *size = static_cast<int64_t>(image.code.size());
  return error.empty() ? 0 : Fail(kNotCompiled, error);
}

}  // extern "C"
