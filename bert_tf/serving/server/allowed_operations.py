"""The TensorFlow operations that a served model may use without `--trust`.

They compute their outputs from their inputs, variables and tables in memory, and do not access
files, the network, Python or other processes. Because this is a list of allowed operations, those
that TensorFlow adds later are refused until somebody has reviewed them. The list was made from the
operations of TensorFlow 2.21. It excludes operations that map a file into memory
(`ImmutableConst`), read a file (`FixedUnigramCandidateSampler`), terminate the process (`Abort`),
run on another device or machine (`RemoteCall`), print, write summaries or return uninitialized
memory (`Empty`).
"""

# The prefix of this package's operations.
ALLOWED_PREFIX = "BertTf>"

_GROUPS = (
    # Tensors.
    """
    BatchMatrixBandPart BatchMatrixDiag BatchMatrixDiagPart BatchMatrixSetDiag BatchToSpace
    BatchToSpaceND Bitcast BitwiseAnd BitwiseOr BitwiseXor BroadcastArgs BroadcastGradientArgs
    BroadcastTo CheckNumerics CheckNumericsV2 CompositeTensorVariantFromComponents
    CompositeTensorVariantToComponents Concat ConcatOffset ConcatV2 ConjugateTranspose Const
    DenseToDenseSetOperation DenseToSparseSetOperation DepthToSpace Dequantize
    DeserializeManySparse DeserializeSparse Diag DiagPart EditDistance EmptyTensorList
    EmptyTensorMap EnsureShape ExpandDims ExtractImagePatches ExtractVolumePatches
    FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars
    FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannel
    FakeQuantWithMinMaxVarsPerChannelGradient Fill Fingerprint Gather GatherNd GatherV2
    GuaranteeConst Identity IdentityN Invert InvertPermutation LeftShift ListDiff LowerBound
    MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2
    MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MirrorPad MirrorPadGrad OneHot
    OnesLike OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone Pack Pad PadV2
    ParallelConcat Placeholder PlaceholderV2 PlaceholderWithDefault PopulationCount
    PreventGradient QuantizeAndDequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3
    QuantizeAndDequantizeV4 QuantizeAndDequantizeV4Grad QuantizeV2 QuantizedConcat
    QuantizedInstanceNorm QuantizedReshape RaggedCross RaggedFillEmptyRows
    RaggedFillEmptyRowsGrad RaggedGather RaggedRange RaggedTensorFromVariant
    RaggedTensorToSparse RaggedTensorToTensor RaggedTensorToVariant
    RaggedTensorToVariantGradient Rank RefIdentity Reshape Reverse ReverseSequence ReverseV2
    RightShift Roll ScatterNd ScatterNdNonAliasingAdd SerializeManySparse SerializeSparse
    SetSize Shape ShapeN Size Slice Snapshot SpaceToBatch SpaceToBatchND SpaceToDepth SparseAdd
    SparseAddGrad SparseConcat SparseCross SparseCrossHashed SparseCrossV2 SparseDenseCwiseAdd
    SparseDenseCwiseDiv SparseDenseCwiseMul SparseFillEmptyRows SparseFillEmptyRowsGrad
    SparseReduceMax SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse SparseReorder
    SparseReshape SparseSlice SparseSliceGrad SparseSoftmax SparseSparseMaximum
    SparseSparseMinimum SparseSplit SparseTensorDenseAdd SparseTensorDenseMatMul SparseToDense
    SparseToSparseSetOperation Split SplitV Squeeze StopGradient StridedSlice StridedSliceAssign
    StridedSliceGrad TensorListConcat TensorListConcatLists TensorListConcatV2
    TensorListElementShape TensorListFromTensor TensorListGather TensorListGetItem
    TensorListLength TensorListPopBack TensorListPushBack TensorListPushBackBatch
    TensorListReserve TensorListResize TensorListScatter TensorListScatterIntoExistingList
    TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack TensorMapErase
    TensorMapHasKey TensorMapInsert TensorMapLookup TensorMapSize TensorMapStackKeys
    TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate
    TensorStridedSliceUpdate Tile TileGrad Transpose Unique UniqueV2 UniqueWithCounts
    UniqueWithCountsV2 Unpack UnravelIndex UpperBound Where ZerosLike
    """,
    # Arithmetic.
    """
    Abs AccumulateNV2 Acos Acosh Add AddN AddV2 All Angle Any ApproximateEqual ArgMax ArgMin
    Asin Asinh Atan Atan2 Atanh BandedTriangularSolve BatchCholesky BatchCholeskyGrad BatchFFT
    BatchFFT2D BatchFFT3D BatchIFFT BatchIFFT2D BatchIFFT3D BatchMatMul BatchMatMulV2
    BatchMatMulV3 BatchMatrixDeterminant BatchMatrixInverse BatchMatrixSolve BatchMatrixSolveLs
    BatchMatrixTriangularSolve BatchSelfAdjointEig BatchSelfAdjointEigV2 BatchSvd BesselI0
    BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e
    BesselY0 BesselY1 Betainc Bincount Bucketize Cast Ceil Cholesky CholeskyGrad ClipByValue
    Complex ComplexAbs Conj Cos Cosh Cross Cumprod Cumsum CumulativeLogsumexp Dawsn
    DenseBincount DenseCountSparseOutput Digamma Div DivNoNan Eig Einsum Equal Erf Erfc Erfinv
    EuclideanNorm Exp Expint Expm1 FFT FFT2D FFT3D FFTND Floor FloorDiv FloorMod FresnelCos
    FresnelSin Greater GreaterEqual HistogramFixedWidth IFFT IFFT2D IFFT3D IFFTND IRFFT IRFFT2D
    IRFFT3D IRFFTND Igamma IgammaGradA Igammac Imag Inv InvGrad IsFinite IsInf IsNan
    KMC2ChainInitialization KmeansPlusPlusInitialization Less LessEqual Lgamma LinSpace Log
    Log1p LogMatrixDeterminant LogicalAnd LogicalNot LogicalOr Lu MatMul MatrixDeterminant
    MatrixExponential MatrixInverse MatrixLogarithm MatrixSolve MatrixSolveLs MatrixSquareRoot
    MatrixTriangularSolve Max Maximum Mean Min Minimum Mod Mul MulNoNan Ndtri NearestNeighbors
    Neg NextAfter NotEqual Polygamma Pow Prod Qr QuantizeDownAndShrinkRange QuantizedAdd
    QuantizedMatMul QuantizedMul RFFT RFFT2D RFFT3D RFFTND RaggedBincount
    RaggedCountSparseOutput Range Real RealDiv Reciprocal ReciprocalGrad RequantizationRange
    RequantizationRangePerChannel Requantize RequantizePerChannel Rint Round Rsqrt RsqrtGrad
    SegmentMax SegmentMaxV2 SegmentMean SegmentMin SegmentMinV2 SegmentProd SegmentProdV2
    SegmentSum SegmentSumV2 Select SelectV2 SelfAdjointEig SelfAdjointEigV2 Sigmoid SigmoidGrad
    Sign Sin Sinh SobolSample SparseBincount SparseCountSparseOutput SparseMatMul
    SparseSegmentMean SparseSegmentMeanGrad SparseSegmentMeanGradV2
    SparseSegmentMeanWithNumSegments SparseSegmentSqrtN SparseSegmentSqrtNGrad
    SparseSegmentSqrtNGradV2 SparseSegmentSqrtNWithNumSegments SparseSegmentSum
    SparseSegmentSumGrad SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments Spence Sqrt
    SqrtGrad Square SquaredDifference Sub Sum Svd Tan Tanh TanhGrad TridiagonalMatMul
    TridiagonalSolve TruncateDiv TruncateMod UnsortedSegmentMax UnsortedSegmentMin
    UnsortedSegmentProd UnsortedSegmentSum Xdivy Xlog1py Xlogy Zeta
    """,
    # Networks.
    """
    ApproxTopK AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BatchNormWithGlobalNormalization
    BatchNormWithGlobalNormalizationGrad BiasAdd BiasAddGrad BiasAddV1 BlockLSTM BlockLSTMGrad
    BlockLSTMGradV2 BlockLSTMV2 CTCBeamSearchDecoder CTCGreedyDecoder CTCLoss CTCLossV2 Conv
    Conv2D Conv2DBackpropFilter Conv2DBackpropFilterV2 Conv2DBackpropInput Conv2DBackpropInputV2
    Conv3D Conv3DBackpropFilter Conv3DBackpropFilterV2 Conv3DBackpropInput Conv3DBackpropInputV2
    CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNCanonicalToParams
    CudnnRNNCanonicalToParamsV2 CudnnRNNParamsSize CudnnRNNParamsToCanonical
    CudnnRNNParamsToCanonicalV2 CudnnRNNV2 CudnnRNNV3 DataFormatDimMap DataFormatVecPermute
    DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput
    Dilation2D Dilation2DBackpropFilter Dilation2DBackpropInput Elu EluGrad FractionalAvgPool
    FractionalAvgPoolGrad FractionalMaxPool FractionalMaxPoolGrad FusedBatchNorm
    FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2
    FusedBatchNormV3 FusedPadConv2D FusedResizeAndPadConv2D GRUBlockCell GRUBlockCellGrad InTopK
    InTopKV2 IsotonicRegression L2Loss LRN LRNGrad LSTMBlockCell LSTMBlockCellGrad LeakyRelu
    LeakyReluGrad LogSoftmax MaxPool MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad
    MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradGradWithArgmax MaxPoolGradV2
    MaxPoolGradWithArgmax MaxPoolV2 MaxPoolWithArgmax NthElement QuantizedAvgPool
    QuantizedBatchNormWithGlobalNormalization QuantizedBiasAdd QuantizedConv2D
    QuantizedConv2DAndRelu QuantizedConv2DAndReluAndRequantize QuantizedConv2DAndRequantize
    QuantizedConv2DPerChannel QuantizedConv2DWithBias QuantizedConv2DWithBiasAndRelu
    QuantizedConv2DWithBiasAndReluAndRequantize QuantizedConv2DWithBiasAndRequantize
    QuantizedConv2DWithBiasSignedSumAndReluAndRequantize QuantizedConv2DWithBiasSumAndRelu
    QuantizedConv2DWithBiasSumAndReluAndRequantize QuantizedDepthwiseConv2D
    QuantizedDepthwiseConv2DWithBias QuantizedDepthwiseConv2DWithBiasAndRelu
    QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize QuantizedMatMulWithBias
    QuantizedMatMulWithBiasAndDequantize QuantizedMatMulWithBiasAndRelu
    QuantizedMatMulWithBiasAndReluAndRequantize QuantizedMatMulWithBiasAndRequantize
    QuantizedMaxPool QuantizedRelu QuantizedRelu6 QuantizedReluX Relu Relu6 Relu6Grad ReluGrad
    Selu SeluGrad Softmax SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign
    SoftsignGrad SparseSoftmaxCrossEntropyWithLogits TopK TopKV2 UniformDequantize
    UniformQuantize UniformQuantizedAdd UniformQuantizedClipByValue UniformQuantizedConvolution
    UniformQuantizedConvolutionHybrid UniformQuantizedDot UniformQuantizedDotHybrid
    UniformRequantize
    """,
    # Random numbers.
    """
    AllCandidateSampler ComputeAccidentalHits LearnedUnigramCandidateSampler
    LogUniformCandidateSampler Multinomial NonDeterministicInts ParameterizedTruncatedNormal
    RandomGamma RandomGammaGrad RandomIndexShuffle RandomPoisson RandomPoissonV2 RandomShuffle
    RandomStandardNormal RandomUniform RandomUniformInt RngReadAndSkip RngSkip
    StatefulRandomBinomial StatefulStandardNormal StatefulStandardNormalV2
    StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt StatefulUniformInt
    StatelessMultinomial StatelessParameterizedTruncatedNormal StatelessRandomBinomial
    StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomGetAlg
    StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomNormal
    StatelessRandomNormalV2 StatelessRandomPoisson StatelessRandomUniform
    StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
    StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessShuffle
    StatelessTruncatedNormal StatelessTruncatedNormalV2 ThreadUnsafeUnigramCandidateSampler
    TruncatedNormal UniformCandidateSampler
    """,
    # Text, images, sound and serialised examples, all of them given as tensors.
    """
    AdjustContrast AdjustContrastv2 AdjustHue AdjustSaturation AsString AudioSpectrogram
    CombinedNonMaxSuppression CropAndResize CropAndResizeGradBoxes CropAndResizeGradImage
    DecodeAndCropJpeg DecodeBase64 DecodeBmp DecodeCSV DecodeCompressed DecodeGif DecodeImage
    DecodeJSONExample DecodeJpeg DecodeJxl DecodePaddedRaw DecodePng DecodeRaw DecodeWav
    DecodeWebP DrawBoundingBoxes DrawBoundingBoxesV2 EncodeBase64 EncodeJpeg
    EncodeJpegVariableQuality EncodePng EncodeWav ExtractGlimpse ExtractGlimpseV2
    ExtractJpegShape GenerateBoundingBoxProposals HSVToRGB ImageProjectiveTransformV2
    ImageProjectiveTransformV3 Mfcc NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3
    NonMaxSuppressionV4 NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps ParseExample
    ParseExampleV2 ParseSequenceExample ParseSequenceExampleV2 ParseSingleExample
    ParseSingleSequenceExample ParseTensor QuantizedResizeBilinear RGBToHSV RandomCrop
    ReduceJoin RegexFullMatch RegexReplace ResizeArea ResizeBicubic ResizeBicubicGrad
    ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad
    SampleDistortedBoundingBox SampleDistortedBoundingBoxV2 ScaleAndTranslate
    ScaleAndTranslateGrad SerializeTensor StatelessSampleDistortedBoundingBox
    StaticRegexFullMatch StaticRegexReplace StringFormat StringJoin StringLength StringLower
    StringNGrams StringSplit StringSplitV2 StringStrip StringToHashBucket StringToHashBucketFast
    StringToHashBucketStrong StringToNumber StringUpper Substr UnicodeDecode
    UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript UnicodeTranscode UnsortedSegmentJoin
    """,
    # Control flow.
    """
    Assert Case ControlTrigger DeviceIndex Enter Exit FakeParam For If LoopCond Merge
    NextIteration NoOp PartitionedCall RefEnter RefExit RefMerge RefNextIteration RefSelect
    RefSwitch StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile Switch Timestamp
    ToBool While
    """,
    # Variables and tables in memory.
    """
    AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable
    AnonymousMutableHashTableOfTensors Assign AssignAdd AssignAddVariableOp AssignSub
    AssignSubVariableOp AssignVariableOp CountUpTo DestroyResourceOp DestroyTemporaryVariable
    DisableCopyOnRead HashTable HashTableV2 InitializeTable InitializeTableV2
    IsVariableInitialized LookupTableExport LookupTableExportV2 LookupTableFind
    LookupTableFindV2 LookupTableImport LookupTableImportV2 LookupTableInsert
    LookupTableInsertV2 LookupTableRemoveV2 LookupTableSize LookupTableSizeV2
    MutableDenseHashTable MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors
    MutableHashTableOfTensorsV2 MutableHashTableV2 ReadVariableOp ResourceCountUpTo
    ResourceGather ResourceGatherNd ResourceScatterAdd ResourceScatterDiv ResourceScatterMax
    ResourceScatterMin ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdMax
    ResourceScatterNdMin ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub
    ResourceScatterUpdate ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul ScatterNdAdd
    ScatterNdMax ScatterNdMin ScatterNdSub ScatterNdUpdate ScatterSub ScatterUpdate
    TemporaryVariable VarHandleOp VarIsInitializedOp Variable VariableShape VariableV2
    """,
    # Loops.
    """
    DynamicPartition DynamicStitch ParallelDynamicStitch Stack StackClose StackCloseV2 StackPop
    StackPopV2 StackPush StackPushV2 StackV2 TensorArray TensorArrayClose TensorArrayCloseV2
    TensorArrayCloseV3 TensorArrayConcat TensorArrayConcatV2 TensorArrayConcatV3
    TensorArrayGather TensorArrayGatherV2 TensorArrayGatherV3 TensorArrayGrad TensorArrayGradV2
    TensorArrayGradV3 TensorArrayGradWithShape TensorArrayPack TensorArrayRead TensorArrayReadV2
    TensorArrayReadV3 TensorArrayScatter TensorArrayScatterV2 TensorArrayScatterV3
    TensorArraySize TensorArraySizeV2 TensorArraySizeV3 TensorArraySplit TensorArraySplitV2
    TensorArraySplitV3 TensorArrayUnpack TensorArrayV2 TensorArrayV3 TensorArrayWrite
    TensorArrayWriteV2 TensorArrayWriteV3
    """,
    # tensorflow-text.
    """
    CaseFoldUTF8 ConstrainedSequence FastBertNormalize FastWordpieceTokenizeWithOffsets
    FindSourceOffsets MaxSpanningTree NormalizeUTF8 NormalizeUTF8WithOffsetsMap PhraseTokenize
    RegexSplitWithOffsets RougeL SentenceFragments SentenceFragmentsV2 SentencepieceDetokenizeOp
    SentencepieceIdToStringOp SentencepieceOp SentencepieceStringToIdOp SentencepieceTokenizeOp
    SentencepieceTokenizeWithOffsetsOp SentencepieceVocabSizeOp SplitMergeTokenizeWithOffsets
    TFText>BoiseTagsToOffsets TFText>ByteSplitByOffsets TFText>ByteSplitWithOffsets
    TFText>FastSentencepieceDetokenize TFText>FastSentencepieceTokenize
    TFText>FastWordpieceDetokenize TFText>NgramsStringJoin TFText>OffsetsToBoiseTags
    TFText>PhraseDetokenize TFText>RoundRobinGenerateMasks TFText>RoundRobinTrim
    TFText>Utf8Binarize TFText>WhitespaceTokenizeWithOffsetsV2 TokenizerFromLogits
    UnicodeScriptTokenizeWithOffsets WhitespaceTokenizeWithOffsets WordpieceTokenizeWithOffsets
    """,
)

ALLOWED_OPERATIONS = frozenset(" ".join(_GROUPS).split())
