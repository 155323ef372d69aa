//! Every message comes back as it went out; what breaks a bound, and junk, is an error.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::clients::exchange::{HandOver, HandedGrant, HandedOver};
use crate::clients::owner::AccountView;

fn key(kind: Kind, tenant: &str, client: &str) -> OwnedKey {
    OwnedKey { kind, tenant: tenant.into(), client: client.into() }
}

fn item(key: OwnedKey) -> Item {
    Item {
        key,
        wish: Wish { spend: 1, want: 2, least: 3 },
        holding: Some(4),
        refund: Some(Refund { credits: 5, age_ns: 6 }),
        debt: 7,
    }
}

fn batch(items: Vec<Item>) -> Batch {
    Batch { sequence: 1, items }
}

fn refused(batch: &Batch) -> String {
    decode_question(&encode_batch(batch)).expect_err("beyond a bound").to_string()
}

#[test]
fn the_longest_batch_and_list_fit_a_message() {
    let longest = item(key(Kind::ClientWrites, &"t".repeat(150), &"c".repeat(256)));
    let wish = Wish { spend: CREDITS_MAX, want: CREDITS_MAX, least: CREDITS_MAX };
    let longest = Item { wish, holding: Some(CREDITS_MAX), debt: CREDITS_MAX, ..longest };
    let all = batch(vec![longest; BATCH_ITEMS_MAX]);
    let bytes = encode_batch(&all);
    assert!(bytes.len() < MESSAGE_BYTES_MAX / 2, "{}", bytes.len());
    assert_eq!(decode_question(&bytes), Ok(Question::Batch(all)));
    let account = AccountView {
        client: "c".repeat(256),
        credit: f64::MIN,
        leased: u64::MAX,
        leases: usize::MAX,
        refused_ago_ms: Some(u64::MAX),
    };
    let accounts = vec![account; LIST_LEN_MAX];
    let bytes = encode_list_reply(&accounts);
    assert!(bytes.len() < MESSAGE_BYTES_MAX / 2, "{}", bytes.len());
    assert_eq!(decode_list_reply(&bytes), Ok(accounts));
}

#[test]
fn names_and_numbers_beyond_their_bounds_are_refused() {
    let check = |kind, tenant: &str, client: &str, expect: Option<&str>| {
        let batch = batch(vec![item(key(kind, tenant, client))]);
        let decoded = decode_question(&encode_batch(&batch));
        let error = decoded.err().map(|error| error.to_string());
        assert_eq!(error.is_some(), expect.is_some(), "{tenant} {client}: {error:?}");
        assert!(error.unwrap_or_default().contains(expect.unwrap_or_default()));
    };
    check(Kind::ClientWrites, "a", "b c", None);
    check(Kind::TenantWrites, "a", "", None);
    check(Kind::TenantWrites, "a", "b", Some("client"));
    for client in ["", "\0", "a\nb", "é", &"c".repeat(257)] {
        check(Kind::ClientQueries, "a", client, Some("client"));
    }
    for tenant in ["", "a b", "a\0", &"t".repeat(151)] {
        check(Kind::ClientWrites, tenant, "c", Some("tenant"));
    }
    let item = item(key(Kind::ClientWrites, "a", "b"));
    let many = refused(&batch(vec![item.clone(); BATCH_ITEMS_MAX + 1]));
    assert_eq!(many, "there are 1001 items, more than 1000");
    let over = CREDITS_MAX + 1;
    for wish in [
        Wish { spend: over, ..item.wish },
        Wish { want: over, ..item.wish },
        Wish { least: over, ..item.wish },
    ] {
        assert!(refused(&batch(vec![Item { wish, ..item.clone() }])).contains("beyond"));
    }
    let owed = Item { debt: over, ..item.clone() };
    assert_eq!(refused(&batch(vec![owed])), "a debt is beyond what it may be");
    let held = Item { holding: Some(over), ..item.clone() };
    assert_eq!(refused(&batch(vec![held])), "what is held is beyond what it may be");
    assert!(refused(&Batch { sequence: 0, items: vec![item] }).contains("sequence"));
    let unknown = proto::Key { kind: 9, tenant: "a".to_owned(), client: "b".to_owned() };
    let unknown = proto::ShowRequest { key: Some(unknown) }.encode_to_vec();
    assert_eq!(decode_show_request(&unknown), Err(BudgetsError::Kind { kind: 9 }));
    assert_eq!(decode_show_request(&[]), Err(BudgetsError::Missing { what: "key" }));
    assert_eq!(decode_question(&[]), Err(BudgetsError::Missing { what: "question" }));
}

#[test]
fn a_hello_of_an_older_gate_is_one_of_write_gates() {
    let told = |gates| proto::Hello {
        id: "a".to_owned(),
        incarnation: 1,
        version: VERSION,
        placement: 2,
        gates,
    };
    let read = |hello: proto::Hello| {
        let question = Some(ProtoQuestion::Hello(hello));
        match decode_question(&proto::Question { question }.encode_to_vec())? {
            Question::Hello(hello) => Ok(hello.gates),
            Question::Batch(_) => panic!("a hello was written"),
        }
    };
    // What is absent on the wire is 0.
    assert_eq!(read(told(0)), Ok(Gates::Distributors));
    assert_eq!(read(told(1)), Ok(Gates::QueryFrontends));
    assert_eq!(read(told(2)), Err(BudgetsError::Gates { gates: 2 }));
}

#[test]
fn a_lease_that_ends_before_we_count_it_as_ended_is_none() {
    let check = |ttl_ms, expect| {
        let granted = ProtoAnswer::Granted(proto::Granted { lease: 5, ttl_ms });
        let answer = decode_answer(proto::Answer { answer: Some(granted) });
        assert_eq!(answer, Ok(Answer::Granted { lease: expect }), "{ttl_ms}");
    };
    check(0, 0);
    check(LEASE_MS - 1, 0);
    check(LEASE_MS, 5);
    check(u32::MAX, 5);
}

#[test]
fn what_is_handed_over_goes_in_as_many_messages_as_it_takes() {
    let account = |at: usize, grants: usize| {
        let holder: Arc<str> = "h".repeat(256).into();
        let grant = HandedGrant { holder, credits: CREDITS_MAX, left_ns: i64::MAX };
        let key = key(Kind::ClientWrites, "a", &at.to_string());
        HandedOver { key, credit: -1.5, grants: vec![grant; grants] }
    };
    let check = |accounts: Vec<HandedOver>, len: usize| {
        let messages = encode_hand_over(&HandOver { accounts: accounts.clone() });
        assert_eq!(messages.len(), len);
        let mut arrived = Vec::new();
        for message in messages {
            assert!(message.len() <= MESSAGE_BYTES_MAX, "{}", message.len());
            arrived.extend(decode_hand_over(&message).expect("within the bounds").accounts);
        }
        assert_eq!(arrived, accounts);
    };
    check(Vec::new(), 0);
    check((0..1000).map(|at| account(at, 0)).collect(), 1);
    check((0..1001).map(|at| account(at, 0)).collect(), 2);
    check((0..100).map(|at| account(at, 256)).collect(), 13);
    for credit in [f64::NAN, f64::INFINITY] {
        let accounts = vec![HandedOver { credit, ..account(0, 0) }];
        let bytes = encode_hand_over(&HandOver { accounts }).remove(0);
        assert_eq!(decode_hand_over(&bytes), Err(BudgetsError::Number { what: "a credit" }));
    }
}

fn keys() -> impl Strategy<Value = OwnedKey> {
    prop_oneof![
        "[a-z.]{1,9}".prop_map(|tenant| key(Kind::TenantWrites, &tenant, "")),
        ("[ab]", "[ -~]{1,9}").prop_map(|(tenant, name)| key(Kind::ClientWrites, &tenant, &name)),
        ("[ab]", "[ -~]{1,9}").prop_map(|(tenant, name)| key(Kind::ClientQueries, &tenant, &name)),
        ("[ab]", "[ -~]{1,9}").prop_map(|(tenant, name)| key(
            Kind::ClientQueryTries,
            &tenant,
            &name
        )),
    ]
}

fn items() -> impl Strategy<Value = Item> {
    let credits = || 0..=CREDITS_MAX;
    let wish = (credits(), credits(), credits());
    let refund = (credits(), 0..=i64::MAX).prop_map(|(credits, age_ns)| Refund { credits, age_ns });
    let (holding, refund) = (proptest::option::of(credits()), proptest::option::of(refund));
    let debt = prop_oneof![Just(0), credits()];
    (keys(), wish, holding, refund, debt).prop_map(
        |(key, (spend, want, least), holding, refund, debt)| Item {
            key,
            wish: Wish { spend, want, least },
            holding,
            refund,
            debt,
        },
    )
}

fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![
        (0..=CREDITS_MAX).prop_map(|lease| Answer::Granted { lease }),
        any::<Option<u64>>().prop_map(|wait_ns| Answer::Denied { wait_ns }),
        Just(Answer::NotOwner),
        Just(Answer::NoLimit),
    ]
}

fn decode_everything(bytes: &[u8]) {
    let _ = decode_question(bytes);
    let _ = decode_reply(bytes);
    let _ = decode_hand_over(bytes);
    let _ = decode_hand_over_reply(bytes);
    let _ = decode_list_request(bytes);
    let _ = decode_list_reply(bytes);
    let _ = decode_show_request(bytes);
    let _ = decode_show_reply(bytes);
    let _ = decode_reset_request(bytes);
    let _ = decode_reset_reply(bytes);
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        sequence in 1..u64::MAX, items in vec(items(), 0..5), answers in vec(answers(), 0..5),
        id in "[a-z-]{1,9}", incarnation: u64, version: u32, placement: u64, was_owed: bool,
        are_queries: bool,
        key in keys(), credit in -1e18..1e18_f64, leased: u64, leases: u32, len_max in 0..1000_usize,
    ) {
        let batch = Batch { sequence, items };
        prop_assert_eq!(decode_question(&encode_batch(&batch)), Ok(Question::Batch(batch)));
        let gates = if are_queries { Gates::QueryFrontends } else { Gates::Distributors };
        let hello = Hello { id: id.as_str().into(), incarnation, version, placement, gates };
        prop_assert_eq!(decode_question(&encode_hello(&hello)), Ok(Question::Hello(hello)));
        let replies = [
            Reply::Answers(Answers { sequence, items: answers }),
            Reply::Welcome(Welcome { id: id.as_str().into(), version }),
        ];
        for reply in replies {
            prop_assert_eq!(decode_reply(&encode_reply(&reply)), Ok(reply));
        }
        prop_assert_eq!(decode_show_request(&encode_show_request(&key)), Ok(key.clone()));
        prop_assert_eq!(decode_reset_request(&encode_reset_request(&key)), Ok(key.clone()));
        prop_assert_eq!(decode_reset_reply(&encode_reset_reply(was_owed)), Ok(was_owed));
        let list = ListRequest { kind: key.kind, tenant: key.tenant.clone(), len_max };
        prop_assert_eq!(decode_list_request(&encode_list_request(&list)), Ok(list));
        let client = key.client.to_string();
        let leases = leases as usize;
        let refused_ago_ms = (leased % 2 == 0).then_some(leased);
        let account = AccountView { client, credit, leased, leases, refused_ago_ms };
        let accounts = vec![account.clone(); 2];
        prop_assert_eq!(decode_list_reply(&encode_list_reply(&accounts)), Ok(accounts));
        for shown in [Shown::NotOwner, Shown::Account(None), Shown::Account(Some(account))] {
            prop_assert_eq!(decode_show_reply(&encode_show_reply(&shown)), Ok(shown));
        }
    }

    #[test]
    fn junk_is_an_error_and_never_a_panic(
        junk in vec(any::<u8>(), 0..200), items in vec(items(), 1..4),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        decode_everything(&junk);
        let mut damaged = encode_batch(&batch(items));
        for (at, byte) in flips {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        decode_everything(&damaged);
    }
}
