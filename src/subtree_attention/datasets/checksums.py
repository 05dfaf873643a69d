"""SHA-256 of raw files, so that a damaged one is named and no foreign pickle is ever opened.

Planetoid's files are pickles, which can run code; the others here are sets of many files, where a
checksum is the plain way to say which one is broken.
"""

SHA256 = {
    "Actor/raw/film_split_0.6_0.2_0.npz": (
        "4505a41d4e90abd94d1ec22571ce528b09ad7cf20d87f764aebd4177590767f5"
    ),
    "Actor/raw/film_split_0.6_0.2_1.npz": (
        "1871b0d24e3977c41e378fd24acc8025b63f86b77739be77a5b558d1287f207d"
    ),
    "Actor/raw/film_split_0.6_0.2_2.npz": (
        "d26680e911ef3ecc9fc2a26d90c9d35028c63aadd7a5aea774649d1496c282cb"
    ),
    "Actor/raw/film_split_0.6_0.2_3.npz": (
        "6755ad5f6a0be8594b344af3d2261eed935b83b73c4d70136e1a7beea7f78cb0"
    ),
    "Actor/raw/film_split_0.6_0.2_4.npz": (
        "328fdca62b25074f21f2922518e042f24b3b8a1fc378f9dfb2cae36439aed902"
    ),
    "Actor/raw/film_split_0.6_0.2_5.npz": (
        "5b3161a8dc8de4b2e651ebd56d68e768d1377044895b325566117fe26ab81cb7"
    ),
    "Actor/raw/film_split_0.6_0.2_6.npz": (
        "e251b38abd4d7931b5e9ae5aba99dcdf87f0be283bdf6e65421274a1c9ef1df6"
    ),
    "Actor/raw/film_split_0.6_0.2_7.npz": (
        "12164ef9f5620a2f12a387f4f2b8636859d42201101d6d32829ade62d5a98326"
    ),
    "Actor/raw/film_split_0.6_0.2_8.npz": (
        "405cd1f7f631f678119f8bf2405809e86614d532985beb59566fcf95abd35b3f"
    ),
    "Actor/raw/film_split_0.6_0.2_9.npz": (
        "505691c5d41bb37b20d085415dcdde2e8e68b5bc4e1feb2c0e361308002012bb"
    ),
    "Actor/raw/out1_graph_edges.txt": (
        "997cdce67ea9c29257d3ffe796328391931901cf823830affa453178b60e2c3e"
    ),
    "Actor/raw/out1_node_feature_label.txt": (
        "1d5cdd094f8b91e770f6decfca85b35cf42f75d1efb51055fd6af16e11820ff8"
    ),
    "Planetoid/CiteSeer/raw/ind.citeseer.allx": (
        "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668"
    ),
    "Planetoid/CiteSeer/raw/ind.citeseer.ally": (
        "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95"
    ),
    "Planetoid/CiteSeer/raw/ind.citeseer.graph": (
        "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7"
    ),
    "Planetoid/CiteSeer/raw/ind.citeseer.test.index": (
        "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4"
    ),
    "Planetoid/CiteSeer/raw/ind.citeseer.tx": (
        "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21"
    ),
    "Planetoid/CiteSeer/raw/ind.citeseer.ty": (
        "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce"
    ),
    "Planetoid/CiteSeer/raw/ind.citeseer.x": (
        "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6"
    ),
    "Planetoid/CiteSeer/raw/ind.citeseer.y": (
        "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924"
    ),
    "Planetoid/Cora/raw/ind.cora.allx": (
        "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"
    ),
    "Planetoid/Cora/raw/ind.cora.ally": (
        "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"
    ),
    "Planetoid/Cora/raw/ind.cora.graph": (
        "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"
    ),
    "Planetoid/Cora/raw/ind.cora.test.index": (
        "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"
    ),
    "Planetoid/Cora/raw/ind.cora.tx": (
        "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"
    ),
    "Planetoid/Cora/raw/ind.cora.ty": (
        "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"
    ),
    "Planetoid/Cora/raw/ind.cora.x": (
        "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"
    ),
    "Planetoid/Cora/raw/ind.cora.y": (
        "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"
    ),
    "Planetoid/PubMed/raw/ind.pubmed.allx": (
        "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"
    ),
    "Planetoid/PubMed/raw/ind.pubmed.ally": (
        "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"
    ),
    "Planetoid/PubMed/raw/ind.pubmed.graph": (
        "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"
    ),
    "Planetoid/PubMed/raw/ind.pubmed.test.index": (
        "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"
    ),
    "Planetoid/PubMed/raw/ind.pubmed.tx": (
        "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"
    ),
    "Planetoid/PubMed/raw/ind.pubmed.ty": (
        "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"
    ),
    "Planetoid/PubMed/raw/ind.pubmed.x": (
        "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"
    ),
    "Planetoid/PubMed/raw/ind.pubmed.y": (
        "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"
    ),
}
